"""Fingerprints of the new tensors, sorted on disk: the rows and the order of the catalog."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from support.simulated import NUMBERS, SKETCH, Row, accepted, families, scanned, tensor_row
from tstore.catalog import Catalog
from tstore.catalog.catalog import write_tables
from tstore.catalog.schema import FINGERPRINTS
from tstore.catalog.workspace import Workspace
from tstore.errors import CatalogDamagedError, PlanInvariantError
from tstore.objects import open_objects
from tstore.plan.dedup import accept, load_scanned
from tstore.plan.placed import PlacedGroups, batched
from tstore.plan.staged import kept_fingerprints, stage_fingerprints

KINDS = {("F32", (12, 4)): 9, ("F32", (100, 4)): 8, ("BF16", (9,)): 7, ("BF16", ()): 3}
PART = 8


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several parts, row groups and batches of few rows."""
    monkeypatch.setattr("tstore.plan.staged.PART_ROWS", PART)
    monkeypatch.setattr("tstore.catalog.parquet.SKETCH_GROUP_ROWS", 3)


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    found = families(5, KINDS)
    found.insert(2, tensor_row("text", "OPAQUE", (3,), None, 3))
    found.insert(8, tensor_row("norm", "BF16", (4,), None, 8))
    return [*found, found[0]]


def stage(connection: Any, extents: pa.Table, place: Path) -> PlacedGroups:
    workspace = Workspace(str(place), "w", "")
    for name, part in (("one", extents[:11]), ("two", extents[11:])):
        workspace.write_shard("scan", name, {"extents": part}, {})
    return stage_fingerprints(connection, workspace, ["one", "two"], SKETCH)


def fingerprints(rows: list[Row]) -> pa.Table:
    unique = {row["tensor_id"]: row for row in rows if row["dtype"] != "OPAQUE"}
    some = [{name: row[name] for name in FINGERPRINTS.names} for row in unique.values()]
    return pa.Table.from_pylist(some, FINGERPRINTS)


def written(rows: list[Row], place: Path) -> list[Row]:
    """Fingerprints as a run commits them."""
    objects = open_objects(str(place))
    parts = write_tables(objects, "r", {"fingerprints": fingerprints(rows)})["fingerprints"]
    found: list[Row] = pa.parquet.read_table(place / parts[0].key).to_pylist()
    return [{name: row[name] for name in FINGERPRINTS.names} for row in found]


def test_staged_rows_are_those_of_the_catalog_in_its_order(rows: list[Row], tmp_path: Path) -> None:
    with accepted(tmp_path / "store", rows) as (connection, extents):
        placed = stage(connection, extents, tmp_path / "space")
        everything = list(kept_fingerprints(connection, placed.parts, "new_unique"))
    assert [part.num_rows for part in everything] == [8, 8, 8, 4]
    found = pa.concat_tables(everything).to_pylist()
    assert found == written(rows, tmp_path / "written")
    assert sum(row["sketch"] is None for row in found) == 1


def test_scanned_rows_are_loaded_without_sketches(rows: list[Row], tmp_path: Path) -> None:
    """One file at a time, and `accept` finds the same as from the rows themselves."""
    sources, extents, occurrences = scanned(rows)
    workspace = Workspace(str(tmp_path / "space"), "w", "")
    for name, part in (("one", slice(0, 11)), ("two", slice(11, None))):
        empty = sources if name == "one" else sources[:0]
        workspace.write_shard("scan", name, {"sources": empty, "extents": extents[part]}, {})
    with accepted(tmp_path / "store", rows) as (connection, _):
        expected = connection.sql("FROM new_unique ORDER BY arrival").fetchall()
    with Catalog(open_objects(str(tmp_path / "store"))).connect() as connection:
        load_scanned(connection, workspace, ["one", "two"])
        accept(connection, occurrences, [])
        assert connection.sql("FROM new_unique ORDER BY arrival").fetchall() == expected
        assert "sketch" not in connection.table("scanned_extents").columns
    assert len(expected) == len(rows) - 1


def test_groups_are_in_order_of_arrival(rows: list[Row], tmp_path: Path) -> None:
    with accepted(tmp_path / "store", rows) as (connection, extents):
        placed = stage(connection, extents, tmp_path / "space")
    assert list(placed.groups) == sorted(KINDS, key=lambda key: (key[0], str(list(key[1]))))
    for group in placed.parts.read(list(placed.groups.values())):
        members = {r["tensor_id"]: r for r in rows if tuple(r["shape"]) == group.shape}
        members = {name: r for name, r in members.items() if r["dtype"] == group.dtype}
        assert group.ids == tuple(members)
        assert (group.sketches == np.array([r["sketch"] for r in members.values()])).all()
        assert group.standalone.tolist() == [r["standalone_ratio"] for r in members.values()]
        assert group.nbytes == next(iter(members.values()))["nbytes"]


def test_some_of_a_group_can_be_read(rows: list[Row], tmp_path: Path) -> None:
    with accepted(tmp_path / "store", rows) as (connection, extents):
        placed = stage(connection, extents, tmp_path / "space")
    group = placed.groups["F32", (12, 4)]
    (whole,), (some,) = placed.parts.read([group]), placed.parts.read([group.some(4)])
    assert some.ids == tuple(whole.ids[i] for i in (0, 2, 5, 8))
    assert (some.sketches == whole.sketches[[0, 2, 5, 8]]).all()
    assert placed.parts.read([]) == []


def test_only_tensors_with_a_blob_are_kept(rows: list[Row], tmp_path: Path) -> None:
    kept = [row["tensor_id"] for row in rows[4:20]]
    with accepted(tmp_path / "store", rows) as (connection, extents):
        placed = stage(connection, extents, tmp_path / "space")
        connection.register("blobs_now", pa.table({"tensor_id": kept}))
        parts = list(kept_fingerprints(connection, placed.parts, "blobs_now"))
        connection.register("no_blobs", pa.table({"tensor_id": pa.array([], pa.string())}))
        assert not list(kept_fingerprints(connection, placed.parts, "no_blobs"))
    found = pa.concat_tables(parts)
    assert found.schema.equals(FINGERPRINTS)
    expected = [row for row in written(rows, tmp_path / "all") if row["tensor_id"] in kept]
    assert found.to_pylist() == expected


def test_parts_of_a_run_are_written_as_they_come(rows: list[Row], tmp_path: Path) -> None:
    objects = open_objects(str(tmp_path))
    table = fingerprints(rows)
    given = iter([table[:5], table[5:]])
    parts = write_tables(objects, "r", {"fingerprints": given})["fingerprints"]
    assert [part.rows for part in parts] == [5, table.num_rows - 5]
    (empty,) = write_tables(objects, "s", {"fingerprints": iter(())})["fingerprints"]
    assert empty.rows == 0
    with pytest.raises(PlanInvariantError, match="columns of fingerprints"):
        write_tables(objects, "t", {"fingerprints": iter([table.drop_columns("sketch")])})


def test_nothing_new_is_no_part(tmp_path: Path) -> None:
    text = [tensor_row("text", "OPAQUE", (3,), None, 3)]
    with accepted(tmp_path / "store", text) as (connection, extents):
        placed = stage(connection, extents, tmp_path / "space")
        ((arrival, row),) = connection.sql('SELECT arrival, "row" FROM described').fetchall()
    assert (placed.parts.keys, dict(placed.groups)) == ((), {})
    assert (arrival, row) == (1, 0)


def test_a_scan_that_lacks_a_tensor_stops_the_run(rows: list[Row], tmp_path: Path) -> None:
    with (
        accepted(tmp_path / "store", rows) as (connection, extents),
        pytest.raises(PlanInvariantError, match="scanned extent for each new tensor"),
    ):
        stage(connection, extents[:-3], tmp_path / "space")


def test_damaged_parts_are_told(rows: list[Row], tmp_path: Path) -> None:
    with accepted(tmp_path / "store", rows) as (connection, extents):
        placed = stage(connection, extents, tmp_path / "space")
    groups = list(placed.groups.values())
    path = tmp_path / "space" / placed.parts.keys[1]
    data = path.read_bytes()
    flipped = bytearray(data)
    flipped[len(data) // 3] ^= 1
    for damaged in (bytes(flipped), data[:-9], b""):
        path.write_bytes(damaged)
        with pytest.raises(CatalogDamagedError, match=r"fingerprints\.parquet"):
            placed.parts.read(groups)
    path.write_bytes((tmp_path / "space" / placed.parts.keys[3]).read_bytes())  # fewer rows
    with pytest.raises(CatalogDamagedError, match="4 rows where"):
        placed.parts.read(groups)
    path.unlink()
    with pytest.raises(CatalogDamagedError, match=r"fingerprints\.parquet"):
        placed.parts.read(groups)


@pytest.mark.parametrize("sketch", [None, [1] * (NUMBERS - 1), []])
def test_rows_without_a_fitting_sketch_are_told(tmp_path: Path, sketch: Any) -> None:
    shape = (8, 8)
    rows = [tensor_row(f"t{i}", "F32", shape, [i] * NUMBERS, 4096) for i in range(4)]
    with accepted(tmp_path / "store", rows) as (connection, extents):
        placed = stage(connection, extents, tmp_path / "space")
    rows[2]["sketch"] = sketch
    objects = open_objects(str(tmp_path / "space"))
    parts = write_tables(objects, "r", {"fingerprints": fingerprints(rows)})["fingerprints"]
    path = tmp_path / "space" / placed.parts.keys[0]
    path.write_bytes(objects.get(parts[0].key))
    with pytest.raises(CatalogDamagedError, match="sketches of"):
        placed.parts.read(list(placed.groups.values()))


def test_batches_hold_whole_items() -> None:
    sizes = [4, 6, 1, 25, 3, 7, 1]
    found = list(batched(sizes, lambda size: size, 10))
    assert found == [[4, 6], [1], [25], [3, 7], [1]]
    assert list(batched([], lambda size: size, 10)) == []
