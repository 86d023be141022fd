"""Scan results and stores made of simulated sketches, and their plain in-memory plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from tstore.catalog import Catalog, RunMarker
from tstore.catalog.catalog import commit, write_tables
from tstore.catalog.schema import BLOBS, EXTENTS, FINGERPRINTS, SOURCES
from tstore.ids import OPAQUE, content_hash, make_tensor_id
from tstore.objects import open_objects
from tstore.plan.dedup import OCCURRENCES, accept
from tstore.plan.planner import PlanInput, plan_groups
from tstore.predict.tensorpred import TensorPred
from tstore.settings import PlanSettings, SketchSettings
from tstore.sketch.groups import GroupKey, SketchGroup

SKETCH = SketchSettings(width=64, min_nbytes=100)
NUMBERS = SKETCH.depth * SKETCH.width
NBYTES = 4096
"""Raw size of simulated tensors, whatever their shape; sketches are drawn to fit it."""

Row = dict[str, Any]


def tensor_row(name: str, dtype: str, shape: tuple[int, ...], sketch: Any, nbytes: int) -> Row:
    """An extent that is called `name`; no sketch for None."""
    return {
        "name": name,
        "tensor_id": make_tensor_id(content_hash(name.encode()), dtype, shape),
        "dtype": dtype,
        "shape": list(shape),
        "nbytes": nbytes,
        "sha256": content_hash(name.encode()) * 2,
        "sketch": sketch,
        "plane_entropy": [] if dtype == OPAQUE else [1.0, 2.5],
        "standalone_ratio": 0.6 + len(name) / 100,
    }


def families(seed: int, kinds: Mapping[GroupKey, int]) -> list[Row]:
    """So many tensors of each dtype and shape, in random order.

    Whatever the seed, those of kin shapes come from the same few roots, as embeddings do whose
    vocabulary grew.
    """
    rng = np.random.default_rng(seed)
    rows = []
    for (dtype, shape), n in kinds.items():
        near = np.random.default_rng([ord(dtype[0]), *shape[1:]]).normal(0, 12, (3, NUMBERS))
        for i in range(n):
            step = rng.normal(0, rng.choice([1, 3, 6]), NUMBERS)
            sketch = np.rint(near[rng.integers(3)] + step).astype(np.int16)
            name = f"{seed}/{dtype}/{shape}/{i}"
            rows.append(tensor_row(name, dtype, shape, sketch, NBYTES))
    return [rows[i] for i in rng.permutation(len(rows))]


def scanned(rows: list[Row], per_file: int = 5) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Sources, extents and occurrences of files that hold these extents, one after the other."""
    sources, extents, occurrences = [], [], []
    for number, first in enumerate(range(0, len(rows), per_file)):
        source = f"/hub/{number:04d}"
        sources.append({"source": source, "sha256": "0" * 64, "readable": True})
        start = 0
        for index, row in enumerate(rows[first : first + per_file]):
            extents.append({**row, "source": source, "index": index, "start": start})
            start += row["nbytes"]
        place = {"ord": number, "repo": f"lab/{number}", "revision": "main", "refs": []}
        tag = {"path": "model", "nbytes": start, "source": source, "source_tag": "0"}
        occurrences.append({**place, **tag})
    # Tasks finish in any order, and so do their rows come.
    extents.sort(key=lambda row: row["sha256"])
    tables = ((sources, SOURCES), (extents, EXTENTS), (occurrences, OCCURRENCES))
    found = tuple(pa.Table.from_pylist(part, schema) for part, schema in tables)
    return found[0], found[1], found[2]


def commit_stored(store: Path, run: str, rows: list[Row], bases: Mapping[str, str]) -> None:
    """A run that stored these tensors, those in `bases` as deltas."""
    blobs = [
        {**dict.fromkeys(BLOBS.names, 0), "tensor_id": row["tensor_id"], "sha256": row["sha256"],
         "dtype": row["dtype"], "pack": run, "codec": "", "checksum": "",
         "base_id": bases.get(row["tensor_id"])}
        for row in rows
    ]  # fmt: skip
    tables = {
        "fingerprints": pa.Table.from_pylist(
            [{name: row[name] for name in FINGERPRINTS.names} for row in rows], FINGERPRINTS
        ),
        "blobs": pa.Table.from_pylist(blobs, BLOBS),
    }
    objects = open_objects(str(store))
    parts = write_tables(objects, run, tables)
    commit(objects, RunMarker(run, "ingest", "0", {}, {}, parts, ""))


@contextmanager
def accepted(
    store: Path, rows: list[Row], lost_packs: tuple[str, ...] = ()
) -> Iterator[tuple[duckdb.DuckDBPyConnection, pa.Table]]:
    """A connection after `accept` of files with these extents, and the scanned extents."""
    sources, extents, occurrences = scanned(rows)
    with Catalog(open_objects(str(store))).connect(lost_packs=lost_packs) as connection:
        connection.register("scanned_sources", sources)
        connection.register("scanned_extents", extents)
        accept(connection, occurrences, [])
        yield connection, extents


def plain_plans(
    connection: duckdb.DuckDBPyConnection,
    scanned_extents: pa.Table,
    predictors: Mapping[str, TensorPred],
    settings: PlanSettings,
    sketch: SketchSettings,
) -> list[Row]:
    """Rows ``plans`` in order of arrival, from all sketches of the scanned extents at once.

    The connection has seen `accept`; nothing else of what it has is used.
    """
    arrivals = connection.sql("SELECT tensor_id FROM new_unique ORDER BY arrival").fetchall()
    extents = {row["tensor_id"]: row for row in scanned_extents.to_pylist()}
    unique = [extents[tensor_id] for (tensor_id,) in arrivals]
    whole = "SELECT tensor_id FROM usable_blobs WHERE base_id IS NULL"
    stored_ids = {tensor_id for (tensor_id,) in connection.sql(whole).fetchall()}
    stored = {
        row["tensor_id"]: row
        for row in _rows(connection, "fingerprints")
        if row["tensor_id"] in stored_ids
    }
    in_use = connection.sql("SELECT base_id FROM current_blobs WHERE base_id NOT NULL").fetchall()
    new = _groups([row for row in unique if row["dtype"] in predictors])
    wanted = {(dtype, shape[1:]) for dtype, shape in new}
    held = _groups([stored[name] for name in sorted(stored)])
    plans = plan_groups(
        PlanInput(
            new=new,
            stored={key: g for key, g in held.items() if (key[0], key[1][1:]) in wanted},
            predictors=predictors,
            bases_in_use={base for (base,) in in_use},
            settings=settings,
            sketch=sketch,
        )
    )
    chosen = {row["tensor_id"]: row for row in plans.to_pylist()}
    return [chosen.get(row["tensor_id"]) or _alone(row, settings) for row in unique]


def _rows(connection: duckdb.DuckDBPyConnection, table: str) -> list[Row]:
    rows: list[Row] = connection.sql(f"SELECT * FROM {table}").to_arrow_table().to_pylist()
    return rows


def _alone(row: Row, settings: PlanSettings) -> Row:
    opaque = row["dtype"] == OPAQUE
    return {
        "tensor_id": row["tensor_id"],
        "dtype": row["dtype"],
        "nbytes": row["nbytes"],
        "role": "opaque" if opaque else "alone",
        "base_id": None,
        "codec": settings.opaque_codec if opaque else settings.standalone_codec,
        "predicted_ratio": row["standalone_ratio"],
        "standalone_ratio": row["standalone_ratio"],
    }


def _groups(rows: list[Row]) -> dict[GroupKey, SketchGroup]:
    members: dict[GroupKey, list[Row]] = {}
    for row in rows:
        if row["sketch"] is not None:
            members.setdefault((row["dtype"], tuple(row["shape"])), []).append(row)
    return {
        key: SketchGroup(
            *key,
            nbytes=some[0]["nbytes"],
            ids=tuple(row["tensor_id"] for row in some),
            sketches=np.array([row["sketch"] for row in some], np.int16),
            standalone=np.array([row["standalone_ratio"] for row in some]),
        )
        for key, some in members.items()
    }
