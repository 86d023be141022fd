"""Pairs are chosen over the whole range and measured with the real codec."""

from dataclasses import replace

import numpy as np
import pytest

import tstore_codecs
from support.hubs import bf16_weights, drifted
from tstore.hub.location import HubLocation
from tstore.hub.reader import stat_source
from tstore.predict.measure import _pieces, measure_shard, plan_measurements
from tstore.predict.pairs import Pair, choose_pairs
from tstore.settings import KIB, MIB, PlanSettings, SketchSettings, TaskSettings
from tstore.sketch.groups import SketchGroup
from tstore.sketch.tensorsketch import build

SKETCH = SketchSettings()
NOTHING = np.empty(0)


def group_of(tensors):
    first = next(iter(tensors.values()))
    return SketchGroup(
        dtype="BF16",
        shape=first.shape,
        nbytes=first.nbytes,
        ids=tuple(tensors),
        sketches=np.stack([build(t.tobytes(), "BF16", SKETCH) for t in tensors.values()]),
        standalone=np.full(len(tensors), 0.66),
    )


@pytest.fixture(scope="module")
def tensors():
    rng = np.random.default_rng(0)
    base = bf16_weights(rng, 256, 160)
    tuned = {f"t{i}": drifted(rng, base, share) for i, share in enumerate([0.02, 0.1, 0.4])}
    return {"base": base, **tuned, "other": bf16_weights(rng, 256, 160)}


def test_near_and_far_pairs_are_chosen(tensors):
    pairs = choose_pairs([(group_of(tensors), None)], SKETCH, NOTHING, 6)
    assert len({(pair.target_id, pair.base_id) for pair in pairs}) == 6
    assert min(pair.distance for pair in pairs) < 0.03
    assert max(pair.distance for pair in pairs) > 0.3
    for pair in pairs:
        assert pair.distance == pytest.approx(np.mean(pair.group_distance))
        if "other" not in (pair.target_id, pair.base_id):
            assert pair.group_distance[0] > 0
            assert pair.group_distance[1:] == (0, 0, 0)  # only the lowest bit differs


def test_groups_without_pairs_give_none(tensors):
    lone = group_of({"base": tensors["base"]})
    assert choose_pairs([], SKETCH, NOTHING, 6) == []
    assert choose_pairs([(lone, None)], SKETCH, NOTHING, 6) == []


def test_new_tensors_are_paired_with_stored_ones(tensors):
    """Near distances are measured though nothing but far ones is known."""
    new = group_of({"t0": tensors["t0"]})
    stored = group_of({name: tensors[name] for name in ("base", "other")})
    known = np.full(96, 0.35)
    pairs = choose_pairs([(new, stored)], SKETCH, known, 96)
    assert ("t0", "base") in [(pair.target_id, pair.base_id) for pair in pairs]


def test_what_the_store_holds_is_not_paired_with_itself(tensors):
    new = group_of({"t0": tensors["t0"]})
    stored = group_of({name: tensors[name] for name in ("base", "t1", "other")})
    pairs = choose_pairs([(new, stored)], SKETCH, NOTHING, 96)
    assert {pair.target_id for pair in pairs} == {"t0"}
    assert len(pairs) == 3


def test_ratio_is_that_of_the_codec_with_the_shape(tensors, tmp_path):
    path = tmp_path / "weights.bin"
    path.write_bytes(b"".join(tensor.tobytes() for tensor in tensors.values()))
    source, nbytes = stat_source(path), tensors["base"].nbytes
    places = {name: HubLocation(source, i * nbytes, nbytes) for i, name in enumerate(tensors)}
    pairs = choose_pairs([(group_of(tensors), None)], SKETCH, NOTHING, 10)
    plan, tasks = PlanSettings(), TaskSettings()
    shards = plan_measurements(pairs, places, plan, tasks)
    rows = [row for shard in shards for row in measure_shard(shard, plan)["pairs"].to_pylist()]
    assert len(rows) == 10
    for row in rows:
        blob = tstore_codecs.encode(
            tensors[row["target_id"]].tobytes(),
            dtype="BF16",
            codec="ulprow",
            base=tensors[row["base_id"]].tobytes(),
            shape=(256, 160),
        )
        assert row["ratio"] == len(blob) / nbytes


PAIR = Pair("BF16", (4096, 1000), "a", "b", 4096 * 2000, 0.1, (0.1,))


def test_a_small_tensor_is_measured_whole():
    assert _pieces(PAIR, PAIR.nbytes) == ([(0, PAIR.nbytes)], (4096, 1000))


def test_pieces_of_a_large_one_are_whole_rows_from_start_to_end():
    ranges, shape = _pieces(PAIR, 4 * MIB)
    assert all(start % 2000 == stop % 2000 == 0 for start, stop in ranges)
    assert ranges[0][0] == 0
    assert ranges[-1][1] == PAIR.nbytes
    nbytes = sum(stop - start for start, stop in ranges)
    assert nbytes == shape[0] * 2000
    assert shape[1:] == (1000,)
    assert 3 * MIB < nbytes <= 4 * MIB


@pytest.mark.parametrize(
    ("shape", "nbytes"), [((1, 9_000_000), 18_000_000), ((9_000_000,), 18_000_000)]
)
def test_rows_longer_than_a_piece_are_cut(shape, nbytes):
    ranges, of = _pieces(replace(PAIR, shape=shape, nbytes=nbytes), 4 * MIB)
    total = sum(stop - start for start, stop in ranges)
    assert all(start % 2 == 0 for start, _ in ranges)
    assert total <= 4 * MIB
    assert np.prod(of) * 2 == total


@pytest.mark.parametrize(
    ("dtype", "shape", "bits"),
    [
        ("F4", (400_000, 3), 4),
        ("F4", (600_000, 17), 4),  # 8.5 bytes a row, 8 when rounded down: the size of a word
        ("F6_E2M3", (524_288, 11), 6),
    ],
)
def test_rows_that_are_no_whole_bytes_are_not_looked_for(dtype, shape, bits):
    """Packed elements: a row may end in the middle of a byte."""
    nbytes = int(np.prod(shape)) * bits // 8
    pair = replace(PAIR, dtype=dtype, shape=shape, nbytes=nbytes)
    ranges, of = _pieces(pair, 256 * KIB)
    assert np.prod(of) * bits == 8 * sum(stop - start for start, stop in ranges)
    data = np.zeros(sum(stop - start for start, stop in ranges), np.uint8)
    tstore_codecs.encode(data, dtype=dtype, codec="ulprow", base=data, shape=of)
