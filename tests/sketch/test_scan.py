"""Scanning: however the files are cut into tasks, the rows are the same."""

import os
from dataclasses import replace

import numpy as np
import pytest

from support.hubs import bf16_weights, safetensors_bytes
from tstore.errors import WorkerLostError
from tstore.hub.reader import stat_source
from tstore.ids import parse_tensor_id, sha256
from tstore.settings import KIB, SketchSettings, TaskSettings
from tstore.sketch import scan as scan_module
from tstore.sketch.scan import plan_scan, rows_of_lost, scan_shard

SKETCH = SketchSettings()
WHOLE = TaskSettings(opaque_extent_nbytes=4 * KIB)


@pytest.fixture
def files(tmp_path):
    """Sources with their paths: a model, text, noise, nothing, and a model that does not parse."""
    rng = np.random.default_rng(2)
    tensors = {f"w{n}": ("BF16", bf16_weights(rng, 64, 16 + n)) for n in range(8)}
    tensors["scalar"] = ("F32", np.float32(3).reshape(()))
    tensors["none"] = ("I64", np.empty((0, 4), np.int64))
    model = safetensors_bytes(tensors)
    contents = {
        "model.safetensors": model,
        "config.json": b"{}",
        "noise.bin": rng.bytes(30_000),
        "empty": b"",
        "broken.safetensors": model[:-1],
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    return [(stat_source(tmp_path / name), name) for name in contents]


def scan(files, tasks):
    """Merged rows of all shards, sorted, and the number of shards."""
    shards = plan_scan(files, SKETCH, tasks)
    tables = [scan_shard(shard, SKETCH, tasks) for shard in shards]
    sources = [row for table in tables for row in table["sources"].to_pylist()]
    extents = [row for table in tables for row in table["extents"].to_pylist()]
    return sources, sorted(extents, key=lambda row: (row["source"], row["index"])), len(shards)


def test_extents_tile_each_file_and_are_described(files):
    sources, extents, shards = scan(files, WHOLE)
    assert shards == 1
    for (source, _), row in zip(files, sources, strict=True):
        with open(source.source, "rb") as file:
            data = file.read()
        mine = [extent for extent in extents if extent["source"] == source.source]
        assert row["sha256"] == sha256(data)
        assert [extent["index"] for extent in mine] == list(range(len(mine)))
        pieces = [data[e["start"] : e["start"] + e["nbytes"]] for e in mine]
        assert b"".join(pieces) == data
        for extent, piece in zip(mine, pieces, strict=True):
            assert extent["sha256"] == sha256(piece)
            identity = parse_tensor_id(extent["tensor_id"])
            assert identity[1:] == (extent["dtype"], tuple(extent["shape"]))
            sketched = extent["name"] is not None and extent["nbytes"] >= SKETCH.min_nbytes
            assert (extent["sketch"] is not None) == sketched
            assert (extent["standalone_ratio"] is None) == (not piece)
    reasons = [row["reason"] for row in sources]
    assert reasons == [None, None, None, None, "OffsetRangeError"]
    assert all(row["readable"] for row in sources)


@pytest.mark.parametrize("scan_nbytes", [1, 3 * KIB, 9 * KIB, 20 * KIB])
def test_large_files_are_split_without_a_trace(files, scan_nbytes):
    split = TaskSettings(scan_nbytes=scan_nbytes, opaque_extent_nbytes=4 * KIB)
    whole_sources, whole_extents, _ = scan(files, WHOLE)
    sources, extents, shards = scan(files, split)
    assert shards > 3
    assert extents == whole_extents
    digests = {row["source"]: row["sha256"] for row in sources if row["sha256"]}
    assert digests == {row["source"]: row["sha256"] for row in whole_sources}
    assert all(row["readable"] for row in sources)


@pytest.mark.parametrize("run_nbytes", [1, 5 * KIB, 20 * KIB])
def test_how_much_is_read_at_once_does_not_matter(files, monkeypatch, run_nbytes):
    whole = scan(files, WHOLE)
    monkeypatch.setattr(scan_module, "RUN_NBYTES", run_nbytes)
    assert scan(files, WHOLE) == whole


def test_a_file_that_is_a_small_part_of_the_hub_is_read_once(files):
    tasks = TaskSettings(scan_nbytes=1)
    many = [
        (replace(source, source=f"{source.source}{n}"), p) for n in range(40) for source, p in files
    ]
    shards = plan_scan(many, SKETCH, tasks)
    assert all(unit.extents is None for shard in shards for unit in shard.units)


@pytest.mark.parametrize("limit", [48, 500, 3 * KIB])
def test_parts_of_tensors_tile_the_same_bytes(files, limit):
    cut = replace(WHOLE, tensor_extent_nbytes=limit)
    _, whole, _ = scan(files, WHOLE)
    sources, extents, _ = scan(files, cut)
    assert all(row["readable"] for row in sources)
    assert max(row["nbytes"] for row in extents if row["name"]) <= limit
    for name in {row["name"] for row in whole if row["name"]}:
        (tensor,) = [r for r in whole if r["name"] == name]
        parts = [r for r in extents if r["name"] == name]
        assert sum(r["nbytes"] for r in parts) == tensor["nbytes"]
        if len(parts) > 1:
            assert [r["part"] for r in parts] == list(range(len(parts)))
        else:
            assert parts == [{**tensor, "index": parts[0]["index"]}]


def test_halves_hold_every_file_once(files):
    (whole,) = plan_scan(files, SKETCH, WHOLE)
    pending, units = [whole], []
    while pending:
        shard = pending.pop()
        if halves := shard.halves():
            assert sum(half.nbytes for half in halves) == shard.nbytes
            pending += halves
        else:
            units += shard.units
    assert sorted(units, key=str) == sorted(whole.units, key=str)


def test_a_file_that_no_worker_survives_is_not_readable(files):
    (whole,) = plan_scan(files, SKETCH, WHOLE)
    first, _ = whole.halves()
    tables = rows_of_lost(first, WorkerLostError("lost it 4 times"))
    rows = tables["sources"].to_pylist()
    assert [row["source"] for row in rows] == [unit.source.source for unit in first.units]
    assert {(row["readable"], row["reason"]) for row in rows} == {(False, "WorkerLostError")}
    assert tables["extents"].num_rows == 0


def test_many_small_files_are_spread(files, monkeypatch):
    monkeypatch.setattr(scan_module, "MAX_UNITS", 2)
    assert [len(shard.units) for shard in plan_scan(files, SKETCH, WHOLE)] == [2, 2, 1]


def test_a_file_that_changed_or_vanished_costs_only_itself(files):
    with open(files[1][0].source, "ab") as file:
        file.write(b"!")
    os.unlink(files[2][0].source)
    for tasks in (WHOLE, TaskSettings(scan_nbytes=1)):
        sources, extents, _ = scan(files, tasks)
        bad = {row["source"]: row["reason"] for row in sources if not row["readable"]}
        assert bad == {
            files[1][0].source: "SourceChangedError",
            files[2][0].source: "SourceUnreadableError",
        }
        assert not {extent["source"] for extent in extents} & bad.keys()
        assert {row["source"] for row in sources if row["sha256"]} == {
            source.source for source, _ in files if source.source not in bad
        }


def test_what_decides_the_rows_decides_the_key(files):
    (one,) = plan_scan(files, SKETCH, WHOLE)
    others = [
        plan_scan(files[1:], SKETCH, WHOLE),
        plan_scan(files, SketchSettings(seed=1), WHOLE),
        plan_scan(files, SKETCH, TaskSettings()),
        plan_scan(files, SKETCH, replace(WHOLE, tensor_extent_nbytes=KIB)),
        plan_scan([(files[0][0], "renamed.bin"), *files[1:]], SKETCH, WHOLE),
    ]
    assert len({one.key, *(shard.key for (shard,) in others)}) == 6
    assert plan_scan(files, SKETCH, WHOLE) == [one]
