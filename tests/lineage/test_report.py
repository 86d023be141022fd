"""Lineage of the really trained models of the example hub, and of made-up ones."""

import numpy as np
import pytest

from support.hubs import bf16_weights, drifted, safetensors_bytes
from support.inline import ingest_inline
from tstore.catalog import open_store
from tstore.catalog.store import open_or_create
from tstore.errors import LineageTooLargeError, RepoNotFoundError
from tstore.lineage import places, report
from tstore.lineage.report import find_lineage
from tstore.lineage.similar import find_similar
from tstore.settings import SketchSettings


@pytest.fixture(scope="module")
def origins(example_store):
    return {origin.model: origin for origin in find_lineage(example_store)}


def test_every_true_parent_is_ranked_first(origins, truth):
    assert set(truth) - set(origins) == {"broken/pygpt-truncated"}, "its file cannot be parsed"
    for model, origin in origins.items():
        parent = truth[model]["parent"]
        first = origin.parents[0] if origin.parents else None
        if parent in origin.same_content_as:
            continue
        if parent is None:
            assert first is None or not first.inferred, model
        else:
            assert first is not None, model
            assert first.inferred, model
            assert parent in (first.model, *first.same_content_as), model


def test_copies_and_the_card_are_told(origins):
    again = origins["mirror/pygpt-bf16-reupload"]
    assert again.same_content_as == ("tinylab/pygpt-bf16",)
    assert origins["tinylab/pygpt-bf16"].copy == "tinylab/pygpt"
    assert origins["zeta/pygpt-math-f32"].copy is None, "another model, not a copy"
    verdicts = {model: origin.verdict for model, origin in origins.items()}
    assert verdicts["acme/pygpt-docs-stage2"] == "ancestor", "the card names the f32 base"
    assert verdicts["acme/pygpt-docs-hilr"] == "silent"
    assert {verdicts[f"acme/{name}"] for name in ("pygpt-docs", "pygpt-tests-frozen")} == {"agree"}
    assert origins["acme/pygpt-tests-frozen"].claims == {"README.md": ["tinylab/pygpt-bf16"]}


def test_one_repository_is_told_as_among_all(example_store, origins):
    assert find_lineage(example_store, "acme/pygpt-docs") == [origins["acme/pygpt-docs"]]
    with pytest.raises(RepoNotFoundError, match="expected tensors"):
        find_lineage(example_store, "broken/pygpt-truncated")


def test_an_empty_store_has_no_lineage(tmp_path):
    assert find_lineage(open_or_create(str(tmp_path), SketchSettings())) == []


def test_too_many_models_need_a_repository(example_store, origins, monkeypatch):
    monkeypatch.setattr(report, "MAX_MODELS", 4)
    with pytest.raises(LineageTooLargeError, match="found 10"):
        find_lineage(example_store)
    (found,) = find_lineage(example_store, "acme/pygpt-docs-stage2")
    assert found.parents[0].model == "acme/pygpt-docs"


def test_similar_ranks_by_bits_and_small_batches_change_nothing(example_store, monkeypatch):
    near, matches = find_similar(example_store, "acme/pygpt-tests-frozen", tensors=True)
    (ranked,) = near.values()
    assert {n.model for n in ranked[:2]} == {"tinylab/pygpt-bf16", "mirror/pygpt-bf16-reupload"}
    assert ranked[-1].model == "other/rsgpt-bf16"
    assert ranked[0].distance == pytest.approx(0.040, abs=0.002)
    assert ranked[0].near > 0.95
    assert ranked[-1].near < 0.05
    frozen = [m for m in matches if m.name.startswith("h.0.")]
    assert len(frozen) == 12
    assert all(m.share == 0 and m.counterpart == m.name for m in frozen)
    monkeypatch.setattr(places, "BATCH_ROWS", 1)
    monkeypatch.setattr(places, "TARGETS", 2)
    assert find_similar(example_store, "acme/pygpt-tests-frozen", tensors=True) == (near, matches)


def share_of_bits(differences):
    """Share of bits that are set in all of these uint16 arrays together."""
    ones = sum(int(np.bitwise_count(words).sum()) for words in differences)
    return ones / sum(16 * words.size for words in differences)


def test_renamed_and_grown_models_are_found(tmp_path):
    rng = np.random.default_rng(3)
    base = {"embed.weight": bf16_weights(rng, 400, 64), "h.0.w": bf16_weights(rng, 128, 96)}
    tuned = {name: drifted(rng, weight, 0.2) for name, weight in base.items()}
    grown = np.concatenate([tuned["embed.weight"], bf16_weights(rng, 16, 64)])
    models = {
        "lab/base": base,
        "lab/one": {name: drifted(rng, weight, 0.2) for name, weight in base.items()},
        "lab/grown": {"model.embed.weight": grown, "model.h.0.w": tuned["h.0.w"]},
    }
    for repo, tensors in models.items():
        (tmp_path / "hub" / repo).mkdir(parents=True)
        data = safetensors_bytes({name: ("BF16", w) for name, w in tensors.items()})
        (tmp_path / "hub" / repo / "model.safetensors").write_bytes(data)
    ingest_inline(tmp_path / "hub", tmp_path / "store")
    near, _ = find_similar(open_store(str(tmp_path / "store")), "lab/grown")
    (ranked,) = near.values()
    assert ranked[0].model == "lab/base"
    assert ranked[0].compared == 1.0
    padded = np.concatenate([base["embed.weight"], np.zeros((16, 64), np.uint16)])
    exact = share_of_bits([padded ^ grown, base["h.0.w"] ^ tuned["h.0.w"]])
    assert ranked[0].distance == pytest.approx(exact, rel=0.08)
    assert ranked[1].distance > ranked[0].distance
