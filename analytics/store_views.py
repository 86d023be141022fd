"""The views of views.sql over any store, in one connection."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from tstore.catalog import Catalog, Store
from tstore.catalog.parquet import check_answered
from tstore.catalog.schema import TABLES
from tstore.errors import CatalogDamagedError, StoreNotFoundError
from tstore.objects.ahead import is_remote
from tstore.settings import DUCKDB_MEMORY

VIEWS = Path(__file__).with_name("views.sql")
TABLES_SQL = "tables.sql"
"""The only file that reads a store; the others know tables."""
_READ = ".read analytics/"

_PART = pa.struct(
    [("key", pa.string()), ("rows", pa.int64()), ("nbytes", pa.int64()), ("sha256", pa.string())]
)
_TEXTS = "run", "kind", "committed_at", "tool_version", "options", "counts"
_MARKERS = pa.schema(
    [
        *((name, pa.string()) for name in _TEXTS),
        ("schema_version", pa.int64()),
        ("tables", pa.map_(pa.string(), pa.list_(_PART))),
        ("merged", pa.list_(pa.string())),
    ]
)
_RUNS = """
CREATE TEMP TABLE runs AS
SELECT run, kind, CAST(committed_at AS TIMESTAMP) AS committed_at, tool_version, schema_version,
       json(options) AS options, json(counts) AS counts, tables, merged
FROM markers ORDER BY run
"""

Row = dict[str, Any]


@contextmanager
def open_views(store: Store) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection with all views.

    A store in a directory is read as in the DuckDB shell. Of one in object storage, the tables are
    read through tstore, once.

    Raises
    ------
    StoreNotFoundError
        Nothing was committed yet.
    StoreFormatError
        A newer tstore wrote a run.
    CatalogDamagedError
        A part of a committed run is gone or damaged.
    ObjectStoreUnavailableError
        The server did not answer.
    """
    uri = store.objects.uri
    catalog = store.catalog()
    if not catalog.runs:
        raise StoreNotFoundError(
            f"expected a committed run in the store at {uri}, found none; ingest a hub first",
            uri=uri,
        )
    with (
        tempfile.TemporaryDirectory(prefix="tstore-duckdb-") as folder,
        duckdb.connect(
            config={"memory_limit": DUCKDB_MEMORY, "temp_directory": folder}
        ) as connection,
    ):
        try:
            if is_remote(uri):
                _load(connection, catalog)
            else:
                connection.execute("SET VARIABLE store = ?", [uri])
            for path in sql_files():
                if path.name != TABLES_SQL or not is_remote(uri):
                    connection.execute(path.read_text(encoding="utf-8"))
            yield connection
        except (duckdb.Error, OSError) as error:
            check_answered(store.objects, error)
            if not isinstance(error, (duckdb.IOException, duckdb.InvalidInputException, OSError)):
                raise
            raise CatalogDamagedError(
                f"expected every part of the committed runs of {uri}, found: {error}; "
                "tstore verify lists what is missing",
                uri=uri,
            ) from error


def sql_files() -> list[Path]:
    """What views.sql reads, in its order."""
    lines = VIEWS.read_text(encoding="utf-8").splitlines()
    names = (line.removeprefix(_READ) for line in lines if line.startswith(_READ))
    return [VIEWS.with_name(name) for name in names]


def rows(connection: duckdb.DuckDBPyConnection, query: str, *values: object) -> list[Row]:
    """Rows of a view or query, each with its columns in order."""
    found = connection.execute(query if " " in query else f"FROM {query}", values)
    columns = [column[0] for column in found.description]
    return [dict(zip(columns, row, strict=True)) for row in found.fetchall()]


def _load(connection: duckdb.DuckDBPyConnection, catalog: Catalog) -> None:
    """The tables of tables.sql from the catalog. Only sketches are too large to be kept."""
    markers = [
        {
            "run": marker.run_id,
            "kind": marker.kind,
            "committed_at": marker.committed_at,
            "tool_version": marker.tool_version,
            "schema_version": marker.schema_version,
            "options": json.dumps(marker.options),
            "counts": json.dumps(marker.counts),
            "tables": [(name, [*map(asdict, parts)]) for name, parts in marker.tables.items()],
            "merged": marker.merged,
        }
        for marker in catalog.runs
    ]
    connection.register("markers", pa.Table.from_pylist(markers, _MARKERS))
    connection.execute(_RUNS)
    for name in TABLES:
        if name == "fingerprints":
            connection.register(name, catalog.dataset(name))
        else:
            connection.register("rows_read", catalog.dataset(name))
            connection.execute(f"CREATE TEMP TABLE {name} AS FROM rows_read")
    connection.unregister("rows_read")
