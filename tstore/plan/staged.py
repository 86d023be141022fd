"""Fingerprints of the new tensors, sorted on disk: memory does not grow with their sketches."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tstore.catalog import keys
from tstore.catalog.parquet import stream_parts, to_bytes
from tstore.catalog.schema import EXTENTS, FINGERPRINTS
from tstore.catalog.workspace import Workspace
from tstore.errors import PlanInvariantError
from tstore.ids import OPAQUE
from tstore.plan.placed import PlacedGroups, numbered, place_groups
from tstore.settings import SketchSettings
from tstore.sketch.parts import FingerprintParts

PART_ROWS = 8 * 1024
"""Rows per part: 64 MiB of sketches at the default size."""

_KEYS = ["tensor_id", "source", "start", "shape", "plane_entropy", "standalone_ratio"]

_DESCRIBED = f"""
CREATE OR REPLACE TEMP TABLE described AS
SELECT u.arrival, u.tensor_id, u.dtype, e.shape, u.nbytes, e.plane_entropy, e.standalone_ratio,
       e.nth, row_number() OVER (
           ORDER BY u.dtype = '{OPAQUE}', u.dtype, e.shape::VARCHAR, u.tensor_id) - 1 AS "row"
FROM new_unique u JOIN numbered_extents e
ON e.tensor_id = u.tensor_id AND e.source = u.locations[1].source
   AND e.start = u.locations[1].start
"""
_UNDESCRIBED = "SELECT tensor_id FROM new_unique ANTI JOIN described USING (tensor_id) LIMIT 1"
_FINGERPRINTED = f"""
CREATE OR REPLACE TEMP VIEW fingerprinted AS FROM described WHERE dtype <> '{OPAQUE}'
"""
_SKETCHED = """
CREATE OR REPLACE TEMP TABLE sketched AS
SELECT tensor_id, dtype, shape, nbytes, "row",
       row_number() OVER (PARTITION BY dtype, shape ORDER BY arrival) AS position
FROM fingerprinted WHERE nbytes >= $min_nbytes
"""
_PART = """
SELECT tensor_id, dtype, shape, nbytes, plane_entropy, standalone_ratio
FROM fingerprinted WHERE "row" BETWEEN $first AND $last ORDER BY "row"
"""
_KEPT = """
SELECT "row" FROM fingerprinted SEMI JOIN {blobs} USING (tensor_id) ORDER BY "row"
"""


@dataclass(frozen=True)
class _Scanned:
    """Extents that some shards of the scan left."""

    workspace: Workspace
    shard_keys: tuple[str, ...]

    def read(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """The same rows in the same order each time."""
        space = self.workspace
        parts = (keys.staged(space.key, "scan", key, "extents") for key in self.shard_keys)
        return stream_parts(space.objects, parts, columns)


def stage_fingerprints(
    connection: duckdb.DuckDBPyConnection,
    workspace: Workspace,
    shard_keys: Iterable[str],
    sketch: SketchSettings,
) -> PlacedGroups:
    """Write the fingerprints of the new tensors to the workspace, sorted as in the catalog.

    Call it after `accept`, on the same connection. It makes the temporary table ``described`` of
    all new unique extents: arrival (from 1), tensor_id, dtype, shape, nbytes, standalone_ratio and
    ``row``, that of the fingerprint.

    DuckDB took five times the memory to sort rows of 8 KB: so it sorts the keys, sketches go to
    their place in an unnamed temporary file, and from there to Parquet, part by part.

    Parameters
    ----------
    connection : DuckDBPyConnection
    workspace : Workspace
    shard_keys : iterable of str
        Shards of the scan.
    sketch : SketchSettings
        Of the sketches.

    Returns
    -------
    PlacedGroups
        Groups of those with sketches, each in order of arrival.

    Raises
    ------
    PlanInvariantError
        The shards lack a new tensor.
    """
    scanned = _Scanned(workspace, tuple(shard_keys))
    connection.register("numbered_extents", numbered(scanned.read(_KEYS), EXTENTS, _KEYS))
    connection.execute(_DESCRIBED)
    connection.unregister("numbered_extents")
    for (tensor_id,) in connection.sql(_UNDESCRIBED).fetchall():
        raise PlanInvariantError(
            f"expected a scanned extent for each new tensor, found none of {tensor_id}"
        )
    connection.execute(_FINGERPRINTED)
    connection.execute(_SKETCHED, {"min_nbytes": sketch.min_nbytes})
    written, ends = list[str](), list[int]()
    for number, rows in enumerate(_sorted(connection, scanned, sketch)):
        key = keys.staged(workspace.key, "fingerprints", f"{number:05d}", "fingerprints")
        workspace.objects.put(key, [to_bytes(rows)])
        written.append(key)
        ends.append(number * PART_ROWS + rows.num_rows)
    parts = FingerprintParts(workspace.uri, tuple(written), tuple(ends))
    return place_groups(connection, "sketched", parts)


def kept_fingerprints(
    connection: duckdb.DuckDBPyConnection, parts: FingerprintParts, blobs: str
) -> Iterator[pa.Table]:
    """Staged fingerprints of the tensors that got a blob, part by part, for `write_tables`.

    Parameters
    ----------
    connection : DuckDBPyConnection
        On which `stage_fingerprints` was called.
    parts : FingerprintParts
        What it wrote.
    blobs : str
        Name of a table or view with the column tensor_id.
    """
    kept = connection.sql(_KEPT.format(blobs=blobs)).to_arrow_table()["row"].to_numpy()
    for first, rows in parts.tables():
        some = kept[np.searchsorted(kept, first) : np.searchsorted(kept, first + rows.num_rows)]
        if some.size < rows.num_rows:
            rows = rows.take(pa.array(some - first))
        if rows.num_rows:
            yield rows.cast(FINGERPRINTS)


def _sorted(
    connection: duckdb.DuckDBPyConnection, scanned: _Scanned, sketch: SketchSettings
) -> Iterator[pa.Table]:
    """Rows ``fingerprints`` in the order of ``row``, `PART_ROWS` at a time."""
    with tempfile.TemporaryFile(prefix="tstore-", buffering=0) as spill:
        valid = _scatter(connection, scanned, sketch, spill.fileno())
        for first in range(0, valid.size, PART_ROWS):
            part = {"first": first, "last": first + PART_ROWS - 1}
            rows = connection.sql(_PART, params=part).to_arrow_table()
            spill.seek(first * _nbytes(sketch))
            values = np.fromfile(spill, np.int16, rows.num_rows * _nbytes(sketch) // 2)
            has = valid[first : first + rows.num_rows]
            lists = _lists(values.reshape(rows.num_rows, -1), has)
            yield rows.append_column("sketch", lists).select(FINGERPRINTS.names).cast(FINGERPRINTS)


def _scatter(
    connection: duckdb.DuckDBPyConnection, scanned: _Scanned, sketch: SketchSettings, spill: int
) -> NDArray[np.bool_]:
    """Write each sketch to its place in the file; tell which rows have one."""
    places = connection.sql('SELECT nth, "row" FROM fingerprinted ORDER BY nth').to_arrow_table()
    nth, row = (places[name].to_numpy() for name in ("nth", "row"))
    valid = np.zeros(row.size, dtype=np.bool_)
    os.ftruncate(spill, row.size * _nbytes(sketch))
    first = 0
    for batch in scanned.read(["sketch"]):
        part = slice(*np.searchsorted(nth, (first, first + batch.num_rows)))
        found = batch["sketch"].take(pa.array(nth[part] - first))
        first += batch.num_rows
        rows = row[part][found.is_valid().to_numpy(zero_copy_only=False)]
        valid[rows] = True
        values = found.flatten().to_numpy().reshape(rows.size, _nbytes(sketch) // 2)
        for place, numbers in zip(rows.tolist(), values, strict=True):
            if os.pwrite(spill, numbers, place * numbers.nbytes) != numbers.nbytes:
                raise OSError(errno.ENOSPC, "no room for sketches", tempfile.gettempdir())
    return valid


def _lists(values: NDArray[np.int16], valid: NDArray[np.bool_]) -> pa.ListArray:
    """Rows as lists, null where not valid."""
    ends = np.concatenate([[0], np.cumsum(valid * values.shape[1])]).astype(np.int32)
    numbers = values if valid.all() else values[valid]
    return pa.ListArray.from_arrays(ends, numbers.reshape(-1), mask=pa.array(~valid))


def _nbytes(sketch: SketchSettings) -> int:
    return 2 * sketch.depth * sketch.width
