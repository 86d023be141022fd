"""What is new: joins of the scanned extents with the committed blobs, in DuckDB.

Pure functions from tables to tables. They run twice: after the scan, to know what to encode, and
before the commit, when the encode stage may have found more sources that cannot be used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from tstore.catalog import keys
from tstore.catalog.parquet import stream_parts
from tstore.catalog.schema import EXTENTS, FILES, SOURCES
from tstore.catalog.workspace import Workspace
from tstore.errors import IdentityCollisionError, PlanInvariantError

OCCURRENCES = pa.schema(
    [
        pa.field("ord", pa.int64()),
        *(FILES.field(name) for name in ("repo", "revision", "refs", "path", "nbytes")),
        pa.field("source", pa.string()),
        FILES.field("source_tag"),
    ]
)
"""Files of the hub snapshot that this run takes in; ``ord`` is the order of arrival."""

BAD_SOURCES = pa.schema(
    [
        pa.field("source", pa.string()),
        pa.field("reason", pa.string()),
        pa.field("message", pa.string()),
    ]
)
"""Sources that must not be used, with the reason."""

_UNSKETCHED = pa.schema(
    [field for field in EXTENTS if field.name not in ("sketch", "plane_entropy")]
)

_SOURCE_STATE = """
CREATE OR REPLACE TEMP TABLE source_state AS
SELECT source, max(sha256) AS sha256, bool_and(readable) AS readable,
       min(reason) AS reason, min(message) AS message
FROM scanned_sources GROUP BY source
"""

_EXTENTS = """
CREATE OR REPLACE TEMP TABLE extent AS
SELECT e.source, first_ord, e."index", e.name, e.part, e.tensor_id, e.dtype, e.shape, e.nbytes, e.start,
       e.sha256
FROM scanned_extents e
JOIN (SELECT source, min(ord) AS first_ord FROM occurrences GROUP BY source) USING (source)
"""

_BAD = f"""
CREATE OR REPLACE TEMP TABLE bad AS
SELECT source, min(reason) AS reason, min(message) AS message FROM (
    SELECT source, reason, message FROM source_state WHERE NOT readable
    UNION ALL
    SELECT source, reason, message FROM given_bad
    UNION ALL
    SELECT e.source, '{IdentityCollisionError.__name__}',
           'expected tensors with id ' || e.tensor_id || ' to have SHA-256 ' || canonical.sha256
           || ', found ' || e.sha256 || '; the file was made to collide and is not stored'
    FROM extent e
    JOIN (
        SELECT tensor_id, coalesce(
            any_value(b.sha256), first(e.sha256 ORDER BY first_ord, "index")) AS sha256
        FROM extent e LEFT JOIN usable_blobs b USING (tensor_id)
        GROUP BY tensor_id
    ) canonical USING (tensor_id)
    WHERE e.sha256 <> canonical.sha256
) GROUP BY source
"""

_GOOD = """
CREATE OR REPLACE TEMP TABLE good AS
SELECT * FROM extent WHERE source NOT IN (SELECT source FROM bad)
"""

_UNIQUE = """
CREATE OR REPLACE TEMP TABLE new_unique AS
SELECT row_number() OVER (ORDER BY min((first_ord, "index"))) AS arrival,
       tensor_id, any_value(dtype) AS dtype, any_value(nbytes) AS nbytes,
       any_value(sha256) AS sha256,
       list({'source': source, 'start': start} ORDER BY first_ord, "index") AS locations
FROM good
WHERE nbytes > 0 AND tensor_id NOT IN (SELECT tensor_id FROM usable_blobs)
GROUP BY tensor_id
"""

_FILES = """
SELECT o.repo, o.revision, o.refs, o.path, o.nbytes, s.sha256, o.source_tag,
       coalesce(l.layout, []) AS layout
FROM occurrences o
JOIN source_state s USING (source)
LEFT JOIN (
    SELECT source, list({'tensor_id': tensor_id, 'nbytes': nbytes} ORDER BY "index") AS layout
    FROM good WHERE nbytes > 0 GROUP BY source
) l USING (source)
WHERE source NOT IN (SELECT source FROM bad)
"""

_TENSORS = """
SELECT o.repo, o.revision, o.path, e.name, e.part, e.tensor_id, e.dtype, e.shape, e.start, e.nbytes
FROM occurrences o JOIN good e USING (source)
WHERE e.name IS NOT NULL
"""

_REJECTS = """
SELECT o.repo, o.revision, o.path, o.nbytes, b.reason, b.message, false AS stored
FROM occurrences o JOIN bad b USING (source)
UNION ALL
SELECT o.repo, o.revision, o.path, o.nbytes, s.reason, s.message, true AS stored
FROM occurrences o JOIN source_state s USING (source)
WHERE s.reason IS NOT NULL AND source NOT IN (SELECT source FROM bad)
"""


@dataclass(frozen=True)
class Accepted:
    """What the run takes in, as queries of temporary tables: all rows of a hub may not fit.

    Attributes
    ----------
    unique : DuckDBPyRelation
        New unique extents, the table ``new_unique``: arrival (from 1), tensor_id, dtype, nbytes,
        sha256, locations (list of source and start, first occurrence first).
    files, tensors, rejects : DuckDBPyRelation
        Rows of those catalog tables.
    """

    unique: duckdb.DuckDBPyRelation
    files: duckdb.DuckDBPyRelation
    tensors: duckdb.DuckDBPyRelation
    rejects: duckdb.DuckDBPyRelation


def load_scanned(
    connection: duckdb.DuckDBPyConnection, workspace: Workspace, shard_keys: Sequence[str]
) -> None:
    """Make the temporary tables ``scanned_sources`` and ``scanned_extents``, without sketches.

    Parameters
    ----------
    connection : DuckDBPyConnection
    workspace : Workspace
    shard_keys : sequence of str
        Shards of the scan.
    """
    for name, schema in (("sources", SOURCES), ("extents", _UNSKETCHED)):
        parts = (keys.staged(workspace.key, "scan", key, name) for key in shard_keys)
        batches = stream_parts(workspace.objects, parts, schema.names)
        rows = pa.RecordBatchReader.from_batches(schema, (b.cast(schema) for b in batches))
        connection.register("staged_rows", rows)
        connection.execute(f"CREATE OR REPLACE TEMP TABLE scanned_{name} AS FROM staged_rows")
        connection.unregister("staged_rows")


def accept(
    connection: duckdb.DuckDBPyConnection, occurrences: pa.Table, bad_sources: Sequence[pa.Table]
) -> Accepted:
    """Deduplicate the scanned extents against one another and against the store.

    Parameters
    ----------
    connection : DuckDBPyConnection
        `Catalog.connect`, with the staged rows registered as ``scanned_sources`` and
        ``scanned_extents``.
    occurrences : pyarrow.Table
        `OCCURRENCES`.
    bad_sources : sequence of pyarrow.Table
        `BAD_SOURCES` found after the scan.

    Raises
    ------
    PlanInvariantError
        A source was never scanned.
    """
    connection.register("occurrences", occurrences)
    connection.register("given_bad", pa.concat_tables([BAD_SOURCES.empty_table(), *bad_sources]))
    for statement in (_SOURCE_STATE, _EXTENTS, _BAD, _GOOD, _UNIQUE):
        connection.execute(statement)
    _check_scanned(connection)
    return Accepted(
        unique=connection.sql("FROM new_unique ORDER BY arrival"),
        files=connection.sql(_FILES),
        tensors=connection.sql(_TENSORS),
        rejects=connection.sql(_REJECTS),
    )


def _check_scanned(connection: duckdb.DuckDBPyConnection) -> None:
    missing = connection.sql(
        "SELECT source FROM occurrences WHERE source NOT IN"
        " (SELECT source FROM source_state WHERE sha256 IS NOT NULL OR NOT readable)"
    ).fetchall()
    if missing:
        raise PlanInvariantError(
            f"expected rows of every file from the scan, found none of {missing[0][0]}"
        )
