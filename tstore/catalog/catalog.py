"""Reading committed runs, and committing one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from tstore.catalog import keys
from tstore.catalog.parquet import read_parts, to_bytes
from tstore.catalog.runs import Part, RunMarker, read_markers
from tstore.catalog.schema import SORT_KEYS, TABLES
from tstore.errors import CatalogDamagedError, PlanInvariantError, RevisionNotFoundError
from tstore.ids import sha256
from tstore.objects import ObjectStore

PART_ROWS = 256 * 1024
"""Rows per part: some tens of MB even with sketches packed, hence one put each."""

CURRENT_FILES = """
CREATE VIEW current_files AS
SELECT * FROM files QUALIFY run = max(run) OVER (PARTITION BY repo, revision)
"""
"""A run that touches a revision lists all of its files, so the newest such run counts."""

CURRENT_BLOBS = """
CREATE VIEW current_blobs AS
SELECT * FROM blobs
QUALIFY row_number() OVER (PARTITION BY tensor_id ORDER BY run DESC, pack, "offset") = 1
"""
"""A tensor may have been encoded again by a later run, which then counts."""


USABLE_BLOBS = """
CREATE VIEW usable_blobs AS
WITH present AS (FROM current_blobs WHERE pack NOT IN (SELECT pack FROM lost_packs))
FROM present WHERE base_id IS NULL OR base_id IN (SELECT tensor_id FROM present)
"""
"""What can be decoded: blobs whose pack, and whose base's pack, is there."""


class Catalog:
    """The runs that were committed when it was opened; later commits do not change it.

    Parameters
    ----------
    objects : ObjectStore
        The store.
    until : str, optional
        Ignore runs after this one.

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
        runs = read_markers(objects)
        if until is not None and until not in (run.run_id for run in runs):
            raise RevisionNotFoundError(f"expected a committed run {until!r}, found none")
        self.runs = tuple(run for run in runs if until is None or run.run_id <= until)

    def parts(self, table: str) -> list[Part]:
        """Committed parts of a table, oldest run first."""
        return [part for run in self.runs for part in run.tables.get(table, ())]

    def dataset(self, table: str) -> ds.Dataset:
        """Committed rows of a table, with the column ``run``."""
        return read_parts(self.objects, (part.key for part in self.parts(table)), TABLES[table])

    @contextmanager
    def connect(self, *, lost_packs: Sequence[str] = ()) -> Iterator[duckdb.DuckDBPyConnection]:
        """An in-memory DuckDB with every table and the views ``current_files``,
        ``current_blobs`` and ``usable_blobs``.

        Parameters
        ----------
        lost_packs : sequence of str
            Packs that are known to be missing; see `lost_packs`.

        Raises
        ------
        CatalogDamagedError
            A part is missing, or a query met one that cannot be read.
        """
        with duckdb.connect() as connection:
            for table in TABLES:
                connection.register(table, self.dataset(table))
            connection.execute(CURRENT_FILES)
            connection.execute(CURRENT_BLOBS)
            lost = pa.table({"pack": pa.array(lost_packs, pa.string())})
            connection.register("lost_packs", lost)
            connection.execute(USABLE_BLOBS)
            try:
                yield connection
            except duckdb.Error:
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
        for table in tables:
            for part in self.parts(table):
                if (problem := part.problem(self.objects)) is not None:
                    raise CatalogDamagedError(f"{problem}; restore it from a backup", key=part.key)


def write_tables(
    objects: ObjectStore, run_id: str, tables: dict[str, pa.Table]
) -> dict[str, list[Part]]:
    """Write the rows of a run, sorted; they stay invisible until `commit`."""
    written = {}
    for name, table in tables.items():
        if not table.schema.equals(TABLES[name]):
            raise PlanInvariantError(
                f"expected the columns of {name}: {TABLES[name].names}, found {table.schema.names}"
            )
        written[name] = _write_parts(objects, run_id, name, table)
    return written


def _write_parts(objects: ObjectStore, run_id: str, name: str, table: pa.Table) -> list[Part]:
    order = pc.sort_indices(_sortable(table), [(k, "ascending") for k in SORT_KEYS[name]])
    parts = []
    # An empty table gets one empty part: plain `read_parquet` fails where it finds no file.
    for number, start in enumerate(range(0, max(table.num_rows, 1), PART_ROWS)):
        rows = table.take(order.slice(start, PART_ROWS))
        data = to_bytes(rows)
        key = keys.part(name, run_id, number)
        objects.put(key, [data])
        parts.append(Part(key, rows.num_rows, len(data), sha256(data)))
    return parts


def _sortable(table: pa.Table) -> pa.Table:
    """Lists as text, since Arrow does not sort lists."""
    if "shape" not in table.column_names:
        return table
    text = pa.array([str(shape) for shape in table["shape"].to_pylist()], pa.string())
    return table.set_column(table.column_names.index("shape"), "shape", text)


def commit(objects: ObjectStore, marker: RunMarker) -> None:
    """Make a run visible. Create-only: of two jobs with one run id, one fails.

    Raises
    ------
    ObjectExistsError
        The run was committed before.
    """
    objects.put_new(keys.run_marker(marker.run_id), [marker.to_bytes()])
