"""Every search finds a planted neighbour; the scores say who did."""

import numpy as np
import pytest

from benchmarks.planning import searches
from benchmarks.planning.searches import (
    NOTHING,
    BitSampling,
    BlockPredictions,
    BruteForce,
    IndexedPredictions,
    Predictions,
    RandomProjection,
    RawHNSW,
    Sketches,
)
from benchmarks.planning.similarity import similarity_table
from tstore.plan.costs import SketchCosts
from tstore.sketch.layout import SketchLayout

from .conftest import SETTINGS


def costs_of(bench, group):
    layout = SketchLayout.of(group.dtype, SETTINGS)
    return SketchCosts(
        group.sketches,
        layout,
        np.full(len(group.ids), group.nbytes),
        bench.predictor("BF16", "fmpp"),
    )


def start_all(bench, group):
    nbytes, n = group.nbytes, len(group.ids)
    return {
        "brute": BruteForce(),
        "raw": RawHNSW(nbytes),
        "lsh": BitSampling(nbytes),
        "projection": RandomProjection(nbytes // 2),
        "sketches": Sketches("BF16", nbytes, n, SETTINGS),
        "predictions": Predictions(costs_of(bench, group), SETTINGS),
        "blocks": BlockPredictions(costs_of(bench, group), SETTINGS),
        "indexed": IndexedPredictions(costs_of(bench, group), SETTINGS),
    }


def test_a_relative_is_found_among_strangers(hub, bench):
    base = hub.contents["lab/base"]
    strangers = list(hub.contents["other/stranger"].values())[:4]
    wanted, asked = base["2.weight"], hub.contents["org/tuned"]["2.weight"]
    (group,) = hub.groups_of([*strangers, wanted, asked])
    for name, search in start_all(bench, group).items():
        for tensor_id in group.ids[:-1]:
            search.add(search.prepare(hub.tensors[tensor_id]))
        assert search.nearest(search.prepare(hub.tensors[asked])) == 4, name


def test_lsh_finds_nothing_where_nothing_collides(hub):
    search = BitSampling(hub.groups[0].nbytes)
    tensors = [hub.tensors[i] for i in hub.groups[0].ids]
    assert search.nearest(search.prepare(tensors[0])) == NOTHING


def test_blocks_give_the_same_answers(hub, bench, monkeypatch):
    monkeypatch.setattr(searches, "BLOCK", 5)
    (group,) = hub.groups
    one = Predictions(costs_of(bench, group), SETTINGS)
    many = BlockPredictions(costs_of(bench, group), SETTINGS)
    for i, tensor_id in enumerate(group.ids):
        known_by = one.prepare(hub.tensors[tensor_id])
        if i:
            assert many.nearest(known_by) == one.nearest(known_by)
        one.add(known_by)
        many.add(known_by)


@pytest.mark.parametrize("dtype", ["F16", "F32"])
def test_floats_of(dtype):
    values = np.array([1.5, -2.0, 0.0, 65504.0], {"F16": np.float16, "F32": np.float32}[dtype])
    assert searches.floats(values.view(np.uint8), dtype).tolist() == values.tolist()


def test_floats_of_bf16_are_the_upper_half_of_f32():
    patterns = np.array([0x3F80, 0xC000, 0x0001], np.uint16)
    expected = (patterns.astype(np.uint32) << 16).view(np.float32)
    assert searches.floats(patterns.view(np.uint8), "BF16").tolist() == expected.tolist()


def test_scores(bench):
    table = similarity_table(bench)
    rows = {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    exact = rows["exact bit distance"]
    assert exact["queries"] == 23
    assert exact["recall@1, bits"] == 1.0
    assert rows["HNSW of raw bits"]["recall@1, bits"] >= 0.95
    assert rows["TensorSketch, TensorPred"]["recall@1, size"] >= 0.8
    for row in rows.values():
        assert row["recall@1, bits"] <= 1.0
        assert row["reduction"] <= exact["reduction"] + 0.01
        assert row["QPS"] >= row["QPS with preparation"] > 0
