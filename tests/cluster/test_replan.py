"""Planning again: arrivals in a bad order, interruptions, what readers see, what is left alone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from support.hubs import FAMILY_LAYERS as LAYERS
from support.hubs import file_hashes, write_family
from support.inline import ingest_inline, replan_inline, stop_at
from support.stores import restore_all
from support.upkeep import rm, undelete
from tstore.catalog import RunMarker, open_store
from tstore.catalog.blobs import BlobLocation
from tstore.cluster import replan as replan_module
from tstore.restore.files import restore_repo
from tstore.restore.lookup import blobs_for, files_of
from tstore.restore.reader import TensorReader
from tstore.restore.verify import verify
from tstore.settings import KIB, TaskSettings


@pytest.fixture(scope="module")
def arrived(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path]]:
    """A store into which a family came one by one, and the hubs that it came from; as they are."""
    root = tmp_path_factory.mktemp("arrived")
    hubs, store = write_family(root / "hubs", 5), root / "store"
    for hub in hubs:
        ingest_inline(hub, store)
    return store, hubs


@pytest.fixture
def grown(arrived: tuple[Path, list[Path]], tmp_path: Path) -> tuple[Path, list[Path]]:
    """A copy of the store to be changed, and the hubs."""
    store, hubs = arrived
    return shutil.copytree(store, tmp_path / "store"), hubs


def stored_nbytes(store: Path) -> int:
    with open_store(str(store)).catalog().connect() as connection:
        return connection.sql("SELECT sum(nbytes) FROM current_blobs").fetchall()[0][0]


def bases(store: Path) -> dict[str, int]:
    """Repositories whose tensors are bases of current deltas, with the number of deltas."""
    with open_store(str(store)).catalog().connect() as connection:
        rows = connection.sql(
            "SELECT t.repo, count(*) FROM current_blobs b JOIN tensors t ON t.tensor_id = b.base_id"
            " GROUP BY t.repo"
        ).fetchall()
    return dict(rows)


def check_restores(store: Path, hubs: list[Path], out: Path) -> None:
    assert verify(open_store(str(store)), read_data=True).problems == []
    restored = file_hashes(restore_all(store, out))
    expected: dict[str, str] = {}
    for hub in hubs:
        expected |= file_hashes(hub)
    assert restored == expected


def test_a_better_centre_becomes_the_base(grown, tmp_path):
    store, hubs = grown
    before = stored_nbytes(store)
    assert list(bases(store)) == ["lab/m0"]
    report = replan_inline(store)
    assert list(bases(store)) == ["lab/m4"]
    after = stored_nbytes(store)
    assert after < 0.96 * before
    assert before - after == report.counts["bytes_before"] - report.counts["bytes_after"]
    promised = report.counts["bytes_before"] - report.counts["bytes_promised"]
    assert promised == pytest.approx(before - after, rel=0.2)
    assert report.counts["moves_made"] == LAYERS * 5
    check_restores(store, hubs, tmp_path / "out")
    marker = open_store(str(store)).catalog().runs[-1]
    assert (marker.run_id, marker.kind) == (report.run_id, "replan")
    assert marker.counts["bytes_promised"] == report.counts["bytes_promised"]


def test_what_is_well_planned_is_left_alone(grown):
    store, _ = grown
    replan_inline(store)
    after = stored_nbytes(store)
    assert replan_inline(store).counts == {}, "nothing arrived since"
    again = replan_inline(store, everything=True)
    assert again.counts["moves"] == 0
    assert stored_nbytes(store) == after


def test_a_dry_run_writes_nothing(grown):
    store, _ = grown
    before = file_hashes(store)
    report = replan_inline(store, dry_run=True)
    assert report.run_id is None
    assert report.counts["bytes_promised"] < report.counts["bytes_before"]
    assert file_hashes(store) == before


def test_the_budget_is_kept_and_the_rest_is_done_the_next_time(grown, tmp_path):
    store, hubs = grown
    whole = replan_inline(store, dry_run=True).counts
    budget = whole["bytes_to_write"] // 2
    report = replan_inline(store, max_rewrite_nbytes=budget)
    assert 0 < report.counts["bytes_to_write"] <= budget
    assert report.counts["sets_left"] > 0
    rest = replan_inline(store)
    assert rest.counts["moves_made"] + report.counts["moves_made"] == whole["moves"]
    check_restores(store, hubs, tmp_path / "out")


def test_too_little_gain_is_not_worth_it(grown):
    store, _ = grown
    assert replan_inline(store, min_gain=0.9).counts["moves"] == 0


def test_a_killed_replan_goes_on(grown, tmp_path):
    store, hubs = grown
    before = stored_nbytes(store)
    small = TaskSettings(encode_nbytes=100 * KIB)
    with pytest.raises(KeyboardInterrupt):
        replan_inline(store, tasks=small, before_shard=stop_at("encode", 1))
    assert stored_nbytes(store) == before
    check_restores(store, hubs, tmp_path / "between")
    report = replan_inline(store, tasks=small)
    assert report.stages["encode"].shards_resumed == 1
    assert stored_nbytes(store) < 0.96 * before
    check_restores(store, hubs, tmp_path / "out")
    assert not list((store / "staging").rglob("*.parquet"))


def test_a_pack_that_was_lost_since_a_replan_was_killed_is_made_again(grown, tmp_path):
    store, hubs = grown
    before = set((store / "packs").rglob("*.safetensors"))
    small = TaskSettings(encode_nbytes=100 * KIB)
    with pytest.raises(KeyboardInterrupt):
        replan_inline(store, tasks=small, before_shard=stop_at("encode", 1))
    (pack,) = set((store / "packs").rglob("*.safetensors")) - before
    pack.unlink()
    assert replan_inline(store, tasks=small).counts["moves_made"] == LAYERS * 5
    check_restores(store, hubs, tmp_path / "out")


def test_a_reader_from_before_goes_on_reading(grown):
    store, _ = grown
    opened = open_store(str(store))
    with opened.catalog().connect() as connection:
        files = files_of(connection)
        blobs: dict[str, BlobLocation] = blobs_for(connection, files)
    replan_inline(store)
    reader = TensorReader(opened.objects, blobs)
    for file in files:
        for extent in file.layout:
            reader.read(extent.tensor_id)


def test_earlier_states_stay_readable(grown, tmp_path):
    store, hubs = grown
    first = open_store(str(store)).catalog().runs[0].run_id
    replan_inline(store)
    restore_repo(open_store(str(store)), "lab/m0", tmp_path / "out", revision=f"main@{first}")
    assert file_hashes(tmp_path / "out") == file_hashes(hubs[0] / "lab/m0")


def test_the_savings_still_add_up(grown):
    """By role and codec, over all runs: as if each tensor had been booked where it is now."""
    store, _ = grown
    raw = "sum(n_extents), sum(bytes_in), sum(bytes_after_dedup)"
    with open_store(str(store)).catalog().connect() as connection:
        before = connection.sql(f"SELECT {raw} FROM savings").fetchall()
    replan_inline(store)
    with open_store(str(store)).catalog().connect() as connection:
        assert connection.sql(f"SELECT {raw} FROM savings").fetchall() == before
        booked = connection.sql(
            "SELECT role, codec, sum(n_extents), sum(bytes_after_dedup), sum(bytes_stored)"
            " FROM savings WHERE role <> 'duplicate' GROUP BY ALL HAVING sum(n_extents) <> 0"
            " ORDER BY ALL"
        ).fetchall()
        stored = connection.sql(
            "SELECT CASE WHEN dtype = 'OPAQUE' THEN 'opaque' WHEN base_id IS NOT NULL THEN 'delta'"
            " WHEN tensor_id IN (SELECT base_id FROM current_blobs) THEN 'base' ELSE 'alone' END,"
            " codec, count(*), sum(raw_nbytes), sum(nbytes) FROM current_blobs GROUP BY ALL ORDER BY ALL"
        ).fetchall()
    assert booked == stored
    assert sum(row[-1] for row in booked) == stored_nbytes(store)


def test_a_damaged_base_costs_only_its_own_set(grown, tmp_path):
    store, _ = grown
    with open_store(str(store)).catalog().connect() as connection:
        pack, offset, tensor_id = connection.sql(
            'SELECT pack, "offset", tensor_id FROM current_blobs'
            " WHERE tensor_id IN (SELECT base_id FROM current_blobs) ORDER BY ALL LIMIT 1"
        ).fetchall()[0]
    path = store / f"packs/{pack[:2]}/{pack}.safetensors"
    data = bytearray(path.read_bytes())
    data[offset + 200] ^= 1
    path.write_bytes(data)
    problems = set(map(str, verify(open_store(str(store)), read_data=True).problems))
    report = replan_inline(store)
    assert report.counts["moves_made"] == (LAYERS - 1) * 5
    with open_store(str(store)).catalog().connect() as connection:
        query = "SELECT count(*) FROM current_blobs WHERE base_id = ?"
        assert connection.execute(query, [tensor_id]).fetchall() == [(4,)]
    found = set(map(str, verify(open_store(str(store)), read_data=True).problems))
    assert found == problems, "no better and no worse"


def pack_of(store: Path, repo: str) -> Path:
    """The pack that most of a repository lies in."""
    with open_store(str(store)).catalog().connect() as connection:
        query = (
            "SELECT pack FROM current_blobs SEMI JOIN (FROM tensors WHERE repo = ?)"
            " USING (tensor_id) GROUP BY pack ORDER BY count(*) DESC LIMIT 1"
        )
        ((pack,),) = connection.execute(query, [repo]).fetchall()
    return store / f"packs/{pack[:2]}/{pack}.safetensors"


def test_deltas_of_a_removed_repository_keep_their_bases(grown, tmp_path):
    """It may be taken back."""
    store, hubs = grown
    rm(store, "lab/m1")
    replan_inline(store)
    undelete(store, "lab/m1")
    check_restores(store, hubs, tmp_path / "out")


@pytest.mark.parametrize("repo", ["lab/m0", "lab/m2", "lab/m4"])
def test_what_lies_in_a_lost_pack_is_left_as_it_is(grown, tmp_path, repo):
    """The pack may come back from a backup."""
    store, hubs = grown
    pack = pack_of(store, repo)
    data = pack.read_bytes()
    pack.unlink()
    replan_inline(store)
    pack.write_bytes(data)
    check_restores(store, hubs, tmp_path / "out")


def test_the_time_is_estimated_from_what_encoding_took_last():
    def run(**stage: float) -> RunMarker:
        return RunMarker("1", "ingest", "", {}, {"stages": {"encode": stage}} if stage else {}, {})

    old, slow = run(task_seconds=1.0, nbytes=100), run(task_seconds=3.0, nbytes=100)
    resumed = run(task_seconds=0.0, nbytes=100)
    assert replan_module._core_seconds([old, slow, resumed, run()], 1000) == 30
    assert replan_module._core_seconds([run()], 1000) == 0


def test_options_are_in_the_marker(grown):
    store, _ = grown
    replan_inline(store, min_gain=0.05)
    told = open_store(str(store)).catalog().runs[-1].options
    assert (told["kind"], told["min_gain"]) == ("replan", 0.05)
    assert json.loads(json.dumps(told)) == told
