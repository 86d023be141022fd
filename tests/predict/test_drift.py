"""A predictor that stored deltas contradict is fitted again, on those deltas."""

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from support.hubs import bf16_weights, drifted
from tstore.catalog.schema import BLOBS, FINGERPRINTS, PAIRS, PLANS
from tstore.predict.drift import drifted_pairs
from tstore.predict.tensorpred import FitReport
from tstore.settings import SketchSettings
from tstore.sketch.distances import distance, group_distances
from tstore.sketch.layout import SketchLayout
from tstore.sketch.tensorsketch import build

SKETCH = SketchSettings()
LAYOUT = SketchLayout.of("BF16", SKETCH)
GOOD_FIT = FitReport(40, 0.999, 0.004, 0.003, 0.008, 0.02)
NBYTES = 64 * 64 * 2


def in_runs(rows, schema):
    """Rows with the column ``run`` that a committed catalog adds."""
    return pa.Table.from_pylist(rows, schema.append(pa.field("run", pa.string())))


@pytest.fixture
def store():
    """A connection to a catalog with one base and twelve deltas of it, and what they missed."""
    rng = np.random.default_rng(4)
    base = bf16_weights(rng, 64, 64)
    tensors = {"base": base} | {f"t{i:02}": drifted(rng, base, 0.02 * (i + 1)) for i in range(12)}
    fingerprints = [
        {
            "tensor_id": name,
            "dtype": "BF16",
            "shape": [64, 64],
            "nbytes": NBYTES,
            "sketch": build(tensor.tobytes(), "BF16", SKETCH),
            "plane_entropy": [],
            "standalone_ratio": 0.66,
            "run": "1",
        }
        for name, tensor in tensors.items()
    ]

    def connect(error, *, n=12, pairs=(), run="1"):
        names = list(tensors)[1 : n + 1]
        plans = [
            {"tensor_id": name, "base_id": "base", "predicted_ratio": 0.1 + i / 100, "run": run,
             "dtype": "BF16", "nbytes": NBYTES, "role": "delta", "codec": "ulprow"}
            for i, name in enumerate(names)
        ]  # fmt: skip
        blobs = [
            {"tensor_id": row["tensor_id"], "base_id": "base", "dtype": "BF16", "run": run,
             "raw_nbytes": NBYTES, "nbytes": round(NBYTES * (row["predicted_ratio"] + error)),
             "codec": "ulprow", "sha256": "", "pack": "", "offset": 0, "checksum": ""}
            for row in plans
        ]  # fmt: skip
        connection = duckdb.connect()
        connection.register("fingerprints", in_runs(fingerprints, FINGERPRINTS))
        connection.register("plans", in_runs(plans, PLANS))
        connection.register("blobs", in_runs(blobs, BLOBS))
        connection.register("pairs", in_runs(pairs, PAIRS))
        return connection

    return connect, tensors


def test_a_predictor_that_holds_is_left_alone(store):
    connect, _ = store
    found = drifted_pairs(connect(0.01), "BF16", "ulprow", GOOD_FIT, SKETCH, 8)
    assert found.num_rows == 0
    assert found.schema == PAIRS


def test_deltas_of_a_drifted_predictor_become_pairs(store):
    connect, tensors = store
    found = drifted_pairs(connect(0.05), "BF16", "ulprow", GOOD_FIT, SKETCH, 8).to_pylist()
    assert len(found) == 8
    assert {row["base_id"] for row in found} == {"base"}
    for row in found:
        pair = [
            build(tensors[row[e]].tobytes(), "BF16", SKETCH)[None] for e in ("target_id", "base_id")
        ]
        groups = group_distances(*pair, LAYOUT, NBYTES)
        assert row["group_distance"] == groups[:, 0, 0].tolist()
        assert row["distance"] == distance(groups, LAYOUT)[0, 0]
        assert row["ratio"] == pytest.approx(0.15 + int(row["target_id"][1:]) / 100, abs=1e-4)
        assert row["nbytes"] == NBYTES
        assert (row["dtype"], row["codec"]) == ("BF16", "ulprow")


def test_few_deltas_tell_nothing(store):
    connect, _ = store
    assert not drifted_pairs(connect(0.3, n=7), "BF16", "ulprow", GOOD_FIT, SKETCH, 8).num_rows


@pytest.mark.parametrize(("dtype", "codec"), [("F32", "ulprow"), ("BF16", "tensorx")])
def test_only_deltas_of_its_own_kind_count(store, dtype, codec):
    connect, _ = store
    assert not drifted_pairs(connect(0.3), dtype, codec, GOOD_FIT, SKETCH, 8).num_rows


def test_what_is_a_pair_already_is_not_taken_twice(store):
    """Else a hub that no model fits would refit on the same deltas for ever."""
    connect, _ = store
    first = drifted_pairs(connect(0.05), "BF16", "ulprow", GOOD_FIT, SKETCH, 99).to_pylist()
    assert len(first) == 12
    known = [{**row, "run": "2"} for row in first]
    again = drifted_pairs(connect(0.05, pairs=known), "BF16", "ulprow", GOOD_FIT, SKETCH, 99)
    assert again.num_rows == 0
