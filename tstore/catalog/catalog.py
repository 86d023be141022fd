"""Reading committed runs, and committing one."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from tstore.catalog import keys
from tstore.catalog.parquet import RUN_FIELD, check_answered, read_parts, to_bytes
from tstore.catalog.runs import Part, RunMarker, read_markers
from tstore.catalog.schema import SORT_KEYS, TABLES
from tstore.errors import (
    CatalogDamagedError,
    LeaseLostError,
    ObjectExistsError,
    PlanInvariantError,
    RevisionNotFoundError,
)
from tstore.ids import sha256
from tstore.objects import ObjectStore
from tstore.settings import DUCKDB_MEMORY

PART_ROWS = 256 * 1024
"""Rows per part: some tens of MB even with sketches packed, hence one put each."""

REMOVED = """
CREATE VIEW removed AS
FROM (FROM removals QUALIFY row_number() OVER (PARTITION BY repo, revision ORDER BY run DESC) = 1)
WHERE removed
"""
"""Revisions that are removed: unless it was taken back, all that was known of them by then is."""

KEPT_FILES = """
CREATE VIEW kept_files AS
FROM files f WHERE NOT EXISTS (
    FROM removed r WHERE r.repo = f.repo AND r.revision = f.revision AND r.run > f.run
)
"""
"""What must stay restorable: all states of all revisions that are not removed."""

CURRENT_FILES = """
CREATE VIEW current_files AS
FROM kept_files QUALIFY run = max(run) OVER (PARTITION BY repo, revision)
"""
"""A run that touches a revision lists all of its files, so the newest such run counts."""

CURRENT_BLOBS = """
CREATE VIEW current_blobs AS
FROM (
    FROM blobs
    QUALIFY row_number() OVER (PARTITION BY tensor_id ORDER BY run DESC, pack, "offset") = 1
) WHERE pack NOT IN (SELECT pack FROM dropped_packs)
"""
"""A tensor may have been encoded again by a later run, which then counts. When that pack is given up,
an earlier blob does not count again: its base may be a delta by now."""


USABLE_BLOBS = """
CREATE VIEW usable_blobs AS
WITH present AS (FROM current_blobs WHERE pack NOT IN (SELECT pack FROM lost_packs))
FROM present WHERE base_id IS NULL OR base_id IN (SELECT tensor_id FROM present)
"""
"""What can be decoded: blobs whose pack, and whose base's pack, is there."""


VIEWS = REMOVED, KEPT_FILES, CURRENT_FILES, CURRENT_BLOBS, USABLE_BLOBS
NEED = "files", "blobs", "removals", "dropped_packs"
"""Tables that tell what of a store is needed. Who deletes or rewrites must see all of their rows."""
_AS_OF = "files", "tensors", "removals", "rejects"
"""Tables that tell what revisions were at a time. How tensors are stored now holds for any time."""


class Catalog:
    """The runs that were committed when it was opened; later commits do not change it.

    Parameters
    ----------
    objects : ObjectStore
        The store.
    until : str, optional
        Revisions as they were after this run.

    Attributes
    ----------
    runs : tuple of RunMarker
        Oldest first.

    Raises
    ------
    RevisionNotFoundError
        There is no run `until`.
    """

    def __init__(self, objects: ObjectStore, *, until: str | None = None) -> None:
        self.objects = objects
        self.runs = read_markers(objects)
        self._until = until
        if until is not None and until not in (run.run_id for run in self.runs):
            raise RevisionNotFoundError(f"expected a committed run {until!r}, found none")
        self._merged = {key for run in self.runs for key in run.merged}

    def parts(self, table: str) -> list[Part]:
        """Committed parts of a table, oldest run first; not those that were merged into others."""
        parts = (part for run in self.runs for part in run.tables.get(table, ()))
        return [part for part in parts if part.key not in self._merged]

    def dataset(self, table: str) -> ds.Dataset:
        """Committed rows of a table, with the column ``run``."""
        keys = (part.key for part in self.parts(table))
        rows = read_parts(self.objects, keys, _with_run(table))
        if self._until is not None and table in _AS_OF:
            return rows.filter(ds.field("run") <= self._until)
        return rows

    @contextmanager
    def connect(self, *, lost_packs: Sequence[str] = ()) -> Iterator[duckdb.DuckDBPyConnection]:
        """An in-memory DuckDB with every table and the views ``removed``, ``kept_files``,
        ``current_files``, ``current_blobs`` and ``usable_blobs``.

        Parameters
        ----------
        lost_packs : sequence of str
            Packs that are known to be missing; see `lost_packs`.

        Raises
        ------
        CatalogDamagedError
            A part is missing, or a query met one that cannot be read.
        """
        with (
            tempfile.TemporaryDirectory(prefix="tstore-duckdb-") as folder,
            duckdb.connect(
                config={"memory_limit": DUCKDB_MEMORY, "temp_directory": folder}
            ) as connection,
        ):
            for table in TABLES:
                connection.register(table, self.dataset(table))
            lost = pa.table({"pack": pa.array(lost_packs, pa.string())})
            connection.register("lost_packs", lost)
            for view in VIEWS:
                connection.execute(view)
            try:
                yield connection
            except (duckdb.Error, OSError) as error:
                check_answered(self.objects, error)
                self.check(TABLES)  # was it a damaged part?
                raise

    def lost_packs(self) -> list[str]:
        """Packs that the catalog names and that are missing or cut short; one listing tells."""
        sizes = {info.key: info.nbytes for info in self.objects.list(keys.PACKS)}
        with self.connect() as connection:
            ends = connection.sql(
                'SELECT pack, max("offset" + nbytes) FROM current_blobs GROUP BY pack ORDER BY pack'
            ).fetchall()
        return [pack for pack, end in ends if sizes.get(keys.pack(pack), 0) < end]

    def check(self, tables: Iterable[str]) -> None:
        """Read every part of these tables and compare its SHA-256.

        Raises
        ------
        CatalogDamagedError
            One is missing or damaged.
        """
        self.check_parts(part for table in tables for part in self.parts(table))

    def check_parts(self, parts: Iterable[Part]) -> None:
        """The same for these parts."""
        for part in parts:
            if (problem := part.problem(self.objects)) is not None:
                raise CatalogDamagedError(f"{problem}; restore it from a backup", key=part.key)


def write_tables(
    objects: ObjectStore, run_id: str, tables: Mapping[str, pa.Table | Iterator[pa.Table]]
) -> dict[str, list[Part]]:
    """Write the rows of a run, sorted; they stay invisible until `commit`.

    Parameters
    ----------
    objects : ObjectStore
    run_id : str
    tables : mapping of str to Table or iterator of Table
        Rows of each table of the catalog, with the column ``run`` where they are of other runs.
        Of an iterator, each item is sorted already and becomes a part, so that only one is in
        memory.
    """
    written = {}
    for name, rows in tables.items():
        parts = sorted_parts(name, rows) if isinstance(rows, pa.Table) else rows
        # An empty table gets one empty part: plain `read_parquet` fails where it finds no file.
        parts = chain([next(parts, TABLES[name].empty_table())], parts)
        written[name] = [
            _write_part(objects, run_id, name, number, part) for number, part in enumerate(parts)
        ]
    return written


def sorted_rows(name: str, rows: duckdb.DuckDBPyRelation) -> Iterator[pa.Table]:
    """Rows of a table in its order, a part at a time, for `write_tables`; DuckDB sorts on disk."""
    schema = _with_run(name) if RUN_FIELD.name in rows.columns else TABLES[name]
    order = ", ".join(f'"{key}"' for key in SORT_KEYS[name])
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in rows.order(order).to_arrow_reader(PART_ROWS):
        held.append(batch)
        count += batch.num_rows
        if count >= PART_ROWS:
            table = pa.Table.from_batches(held).cast(schema)
            yield table.slice(0, PART_ROWS)
            held, count = table.slice(PART_ROWS).to_batches(), count - PART_ROWS
    if count:
        yield pa.Table.from_batches(held).cast(schema)


def sorted_parts(name: str, table: pa.Table) -> Iterator[pa.Table]:
    """Rows of a table in its order, a part at a time, for `write_tables`."""
    _check_columns(name, table)
    order = pc.sort_indices(_sortable(table), [(k, "ascending") for k in SORT_KEYS[name]])
    for start in range(0, table.num_rows, PART_ROWS):
        yield table.take(order.slice(start, PART_ROWS))


def _write_part(objects: ObjectStore, run_id: str, name: str, number: int, rows: pa.Table) -> Part:
    _check_columns(name, rows)
    if RUN_FIELD.name not in rows.column_names:
        rows = rows.append_column(RUN_FIELD, pa.repeat(run_id, rows.num_rows))
    data = to_bytes(rows)
    key = keys.part(name, run_id, number)
    objects.put(key, [data])
    return Part(key, rows.num_rows, len(data), sha256(data))


def _check_columns(name: str, table: pa.Table) -> None:
    if not any(table.schema.equals(schema) for schema in (TABLES[name], _with_run(name))):
        raise PlanInvariantError(
            f"expected the columns of {name}: {TABLES[name].names}, found {table.schema.names}"
        )


def _with_run(name: str) -> pa.Schema:
    return TABLES[name].append(RUN_FIELD)


def _sortable(table: pa.Table) -> pa.Table:
    """Lists as text, since Arrow does not sort lists."""
    if "shape" not in table.column_names:
        return table
    text = pa.array([str(shape) for shape in table["shape"].to_pylist()], pa.string())
    return table.set_column(table.column_names.index("shape"), "shape", text)


def commit(objects: ObjectStore, marker: RunMarker) -> None:
    """Make a run visible. Create-only: it cannot be done twice, nor after the run was barred.

    Raises
    ------
    LeaseLostError
        Another job took the lease over and barred the run.
    """
    try:
        objects.put_new(keys.run_marker(marker.run_id), [marker.to_bytes()])
    except ObjectExistsError as error:
        raise LeaseLostError(
            f"expected to commit run {marker.run_id}, found that another job took the writer lease "
            "over and barred it; nothing was committed, run the job again"
        ) from error
