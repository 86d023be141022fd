"""Planning in shards, from fingerprints on disk: the same plans as from all sketches in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

from support.inline import ingest_inline
from support.simulated import (
    SKETCH,
    Row,
    accepted,
    commit_stored,
    families,
    plain_plans,
    tensor_row,
)
from tstore.catalog import Catalog, keys
from tstore.catalog.workspace import Workspace
from tstore.cluster import planning
from tstore.objects import open_objects
from tstore.plan import shards
from tstore.plan.rows import write_plans
from tstore.plan.shards import PlanSetup, PlanShard, plan_shard, plan_shards
from tstore.plan.staged import stage_fingerprints
from tstore.plan.stored import place_stored
from tstore.predict.tensorpred import prior
from tstore.settings import PlanSettings, TaskSettings
from tstore.sketch.layout import SketchLayout

HUB = Path(__file__).parents[2] / "examples" / "hub"
PLAN = PlanSettings()
PREDICTORS = {
    dtype: prior(dtype, "ulprow", SketchLayout.of(dtype, SKETCH).shares)
    for dtype in ("BF16", "F32")
}
KINDS = {
    ("BF16", (40, 8)): 30,
    ("BF16", (44, 8)): 12,
    ("BF16", (49, 8)): 1,
    ("BF16", (40, 9)): 17,
    ("BF16", (400,)): 9,
    ("F32", (40, 8)): 21,
    ("F32", (45, 8)): 1,
    ("F32", ()): 3,
    ("F64", (40, 8)): 6,  # no predictor
}


@pytest.fixture(scope="module")
def new() -> list[Row]:
    """Tensors in groups large and small, some without sketch, and opaque bytes."""
    rows = families(1, KINDS)
    rows[7:7] = [tensor_row("text", "OPAQUE", (5,), None, 5)]
    rows[70:70] = [tensor_row("norm", "BF16", (3,), None, 6)]
    return [*rows, rows[3], rows[40]]  # duplicates


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, new: list[Row]) -> Path:
    """What two runs stored: tensors of some of the groups, and one more of their kin.

    The pack of the first is gone: of what it held, two are bases of the second and come again.
    """
    path = tmp_path_factory.mktemp("stored")
    shapes = {("BF16", (40, 8)): 15, ("BF16", (42, 8)): 4, ("F32", (40, 8)): 5, ("F16", (1, 8)): 2}
    older, newer = families(2, shapes), families(3, shapes)
    again = [row for row in new if row["sketch"] is not None][:2]
    bases = {row["tensor_id"]: again[i % 2]["tensor_id"] for i, row in enumerate(newer[:4])}
    commit_stored(path, "20260101T000000.000000Z-0", [*older, *again], {})
    commit_stored(path, "20260102T000000.000000Z-0", [*newer, *older[:6]], bases)
    return path


LOST = ("20260101T000000.000000Z-0",)


class Planning:
    """The plan stage without a cluster."""

    def __init__(self, connection: Any, extents: pa.Table, store: Path, place: Path, **setup: Any):
        self.connection = connection
        self.workspace = Workspace(str(place), "w", "")
        middle = extents.num_rows // 2
        for name, part in (("one", extents[:middle]), ("two", extents[middle:])):
            self.workspace.write_shard("scan", name, {"extents": part}, {})
        self.new = stage_fingerprints(connection, self.workspace, ["one", "two"], SKETCH)
        catalog = Catalog(open_objects(str(store)))
        self.stored = place_stored(connection, catalog, self.new.groups, SKETCH)
        job = mock.Mock(connection=connection)
        self.in_use = planning._bases_in_use(job)
        given = {"predictors": PREDICTORS, "settings": PLAN, "sketch": SKETCH, **setup}
        self.setup = PlanSetup(self.new.parts, self.stored.parts, **given)

    def shards(self) -> list[PlanShard]:
        return plan_shards(self.new, self.stored, self.in_use, self.setup, TaskSettings())

    def plans(self, some: list[PlanShard]) -> list[Row]:
        for shard in some:
            self.workspace.write_shard("plan", shard.key, plan_shard(shard, self.setup), {})
        choices = self.workspace.rows("plan", "plans", [shard.key for shard in some])
        write_plans(self.connection, choices, PLAN)
        query = "SELECT * EXCLUDE arrival FROM planned ORDER BY arrival"
        rows: list[Row] = self.connection.sql(query).to_arrow_table().to_pylist()
        return rows


@pytest.mark.parametrize("rows", [1, 20, 60, 8192])
def test_plans_are_those_from_memory(
    new: list[Row], store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr(shards, "SHARD_ROWS", rows)
    monkeypatch.setattr("tstore.plan.staged.PART_ROWS", 16)
    monkeypatch.setattr("tstore.catalog.parquet.SKETCH_GROUP_ROWS", 5)
    with accepted(store, new, LOST) as (connection, extents):
        expected = plain_plans(connection, extents, PREDICTORS, PLAN, SKETCH)
        stage = Planning(connection, extents, store, tmp_path)
        found = stage.plans(list(reversed(stage.shards())))
    assert found == expected
    assert {row["role"] for row in found} == {"base", "delta", "alone", "opaque"}
    shape_of = {row["tensor_id"]: row["shape"] for row in new}
    resized = [
        row for row in found
        if row["base_id"] in shape_of and shape_of[row["base_id"]] != shape_of[row["tensor_id"]]
    ]  # fmt: skip
    assert resized, "kin shapes are planned together"
    assert any(row["base_id"] and row["base_id"] not in shape_of for row in found), "stored bases"
    assert sum(len(in_use) for in_use in stage.in_use.values()) == 2


def test_shards_hold_whole_sets_of_kin_and_a_bounded_number_of_sketches(
    new: list[Row], store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "SHARD_ROWS", 40)
    with accepted(store, new, LOST) as (connection, extents):
        found = Planning(connection, extents, store, tmp_path).shards()
    units = [unit for shard in found for unit in shard.units]
    kinds = sorted((group.dtype, group.shape) for unit in units for group in unit.new)
    assert kinds == sorted(key for key in KINDS if key[0] in PREDICTORS)
    of = {group.key: unit for unit in units for group in (*unit.new, *unit.stored)}
    assert of["BF16", (40, 8)] is of["BF16", (42, 8)] is of["BF16", (49, 8)]
    assert of["F32", (40, 8)] is of["F32", (45, 8)] is not of["F32", ()]
    for shard in found:
        assert len(shard.units) == 1 or shard.nbytes <= 40 * 2 * 128
    sizes = [shard.memory_nbytes for shard in found]
    assert sizes == sorted(sizes, reverse=True)


def test_halves_are_the_same_work(new: list[Row], store: Path, tmp_path: Path) -> None:
    with accepted(store, new, LOST) as (connection, extents):
        stage = Planning(connection, extents, store, tmp_path)
        (whole,) = stage.shards()
        one, two = whole.halves()
        assert one.units + two.units == whole.units
        assert len({whole.key, one.key, two.key}) == 3
        assert stage.plans([one, two]) == stage.plans([whole])
    while one.units[1:]:
        one, _ = one.halves()
    assert one.halves() == ()


def keys_of(store: Path, rows: list[Row], place: Path, **setup: Any) -> dict[Any, str]:
    """Key of the shard of each group."""
    with (
        mock.patch.object(shards, "SHARD_ROWS", 1),
        accepted(store, rows, LOST) as (connection, extents),
    ):
        found = Planning(connection, extents, store, place, **setup).shards()
    return {group.key: shard.key for shard in found for u in shard.units for group in u.new}


def test_keys_tell_what_decides_a_plan(new: list[Row], store: Path, tmp_path: Path) -> None:
    before = keys_of(store, new, tmp_path)
    assert keys_of(store, new, tmp_path / "elsewhere") == before
    changed = {"predictors": {"BF16": PREDICTORS["BF16"]}}
    assert set(keys_of(store, new, tmp_path, **changed).values()).isdisjoint(before.values())
    lone = next(row for row in new if row["shape"] == [400])
    kind = ("BF16", (400,))
    for rows in (
        [row for row in new if row is not lone],
        [*(row for row in new if row is not lone), lone],  # another order of arrival
    ):
        after = keys_of(store, rows, tmp_path)
        assert {key for key in before if before[key] != after[key]} == {kind}


def test_an_example_hub_is_planned_the_same_way_by_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted and resumed, in small shards, last first."""
    monkeypatch.setattr(planning, "FEW_SKETCHES", 0)
    monkeypatch.setattr(shards, "SHARD_ROWS", 16)
    plan_new, ran = planning.plan_new, list[int]()

    def compared(job: Any, new: Any, stored: Any, predictors: Any, in_use: Any) -> None:
        plan_new(job, new, stored, predictors, in_use)
        query = "SELECT * EXCLUDE arrival FROM planned ORDER BY arrival"
        found = job.connection.sql(query).to_arrow_table().to_pylist()
        plan, sketch = job.options.plan, job.store.sketch
        done = job.workspace.finished("scan")
        extents = job.workspace.rows("scan", "extents", done).to_table()
        assert found == plain_plans(job.connection, extents, predictors, plan, sketch)

    def stop(stage: str, number: int) -> None:
        if stage == "plan":
            ran.append(number)
            if len(ran) == 3:
                raise KeyboardInterrupt

    monkeypatch.setattr(planning, "plan_new", compared)
    store = tmp_path / "store"
    with pytest.raises(KeyboardInterrupt):
        ingest_inline(HUB, store, before_shard=stop, last_first=True)
    report = ingest_inline(HUB, store)
    assert report.stages["plan"].shards > 4
    assert report.stages["plan"].shards_resumed == 2
    assert not list(open_objects(str(store)).list(keys.STAGING))
