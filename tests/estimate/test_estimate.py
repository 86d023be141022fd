"""Estimates against real ingests."""

import json

import pytest
from typer.testing import CliRunner

from support.inline import ingest_inline
from tstore.cli.estimate import parse_sample
from tstore.cli.main import app
from tstore.errors import EmptyHubError, HubNotFoundError
from tstore.estimate import blocks
from tstore.estimate.estimate import EstimateOptions, estimate_hub
from tstore.objects import open_objects
from tstore.settings import PlanSettings


@pytest.fixture(scope="module")
def whole(small_hub):
    """Estimate from all bytes of the small hub."""
    return estimate_hub(EstimateOptions(str(small_hub)))


def test_an_estimate_from_everything_is_what_an_ingest_takes(small_hub, whole, tmp_path):
    counts = ingest_inline(small_hub, tmp_path / "store").counts
    assert whole.total.nbytes == counts["bytes_in"]
    assert whole.files == counts["files"]
    assert whole.total.stored == pytest.approx(counts["bytes_stored"], rel=0.03)
    after_dedup = (1 - whole.total.dedup) * whole.total.nbytes
    assert after_dedup == pytest.approx(counts["bytes_after_dedup"], rel=0.01)
    assert sum(part.nbytes for part in whole.dtypes.values()) == whole.total.nbytes
    bf16 = whole.dtypes["BF16"]
    assert (bf16.dedup, bf16.alone, bf16.delta) == pytest.approx((0.25, 0.5, 0.25))


def test_a_codec_without_a_base_makes_no_deltas(small_hub, whole):
    plan = PlanSettings.for_codec("zipnn", needs_base=False)
    found = estimate_hub(EstimateOptions(str(small_hub), plan=plan))
    assert found.total.delta == 0
    assert found.total.stored > whole.total.stored


def test_patterns_choose_what_is_looked_at(small_hub):
    found = estimate_hub(EstimateOptions(str(small_hub), include=("lab/base",), exclude=("*.md",)))
    assert found.files == 2
    assert found.total.dedup == found.total.delta == 0
    with pytest.raises(EmptyHubError):
        estimate_hub(EstimateOptions(str(small_hub), include=("nobody/*",)))
    with pytest.raises(HubNotFoundError):
        estimate_hub(EstimateOptions(str(small_hub / "nowhere")))


def test_blocks_that_are_read_twice_say_the_same(small_hub, whole, monkeypatch):
    monkeypatch.setattr(blocks, "HELD_NBYTES", 0)
    assert estimate_hub(EstimateOptions(str(small_hub))) == whole


def test_of_many_members_some_stand_for_all(small_hub, whole, monkeypatch):
    monkeypatch.setattr(blocks, "MAX_MEMBERS", 2)
    found = estimate_hub(EstimateOptions(str(small_hub)))
    assert found.sampled < whole.sampled
    assert found.total.nbytes == whole.total.nbytes
    assert found.dtypes["BF16"].dedup == 0, "the first and the last are strangers"


def test_a_hub_in_object_storage_is_estimated_alike(s3, small_hub, whole):
    uri = s3.uri("hub")
    objects = open_objects(uri)
    for path in small_hub.rglob("*"):
        if path.is_file():
            objects.put(path.relative_to(small_hub).as_posix(), [path.read_bytes()])
    assert estimate_hub(EstimateOptions(uri)) == whole


def test_command_says_it_in_a_table_and_as_json(small_hub, whole):
    result = CliRunner().invoke(app, ["estimate", str(small_hub), "--sample", "100%"])
    assert (result.exit_code, result.stderr) == (0, "")
    assert f"{whole.total.ratio:.3f} ± {whole.total.error:.3f} of raw" in result.stdout
    assert [line.split()[0] for line in result.stdout.splitlines()[2:5]] == [
        "BF16",
        "OPAQUE",
        "all",
    ]
    result = CliRunner().invoke(app, ["estimate", str(small_hub), "--json"])
    said = json.loads(result.stdout)
    assert said["total"]["ratio"] == whole.total.ratio
    assert said["dtypes"]["BF16"]["nbytes"] == whole.dtypes["BF16"].nbytes


@pytest.mark.parametrize(
    ("text", "value"), [("5%", 0.05), ("0.05", 0.05), ("1", 1.0), ("500MB", 5e8), ("1.5 GB", 1.5e9)]
)
def test_samples_are_shares_or_bytes(text, value):
    assert parse_sample(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["0", "2", "0%", "120%", "much", "-1", "5 Q", "0MB", ""])
def test_other_samples_are_refused(text):
    result = CliRunner().invoke(app, ["estimate", "hub", f"--sample={text}"])
    assert result.exit_code == 2
    assert "expected a share such as 5% or bytes such as" in " ".join(result.stderr.split())
