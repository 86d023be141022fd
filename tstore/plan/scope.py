"""Which stored tensors are worth planning again."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb

from tstore.catalog import RunMarker
from tstore.ids import OPAQUE
from tstore.sketch.groups import GroupKey

_LIVE = """
CREATE OR REPLACE TEMP TABLE live AS
SELECT DISTINCT x.tensor_id FROM (SELECT unnest(layout) AS x FROM kept_files)
"""
"""What the files of any kept state need. A base that only deltas need is not among them."""

READABLE = "SELECT tensor_id FROM live SEMI JOIN usable_blobs USING (tensor_id)"
"""Query of those of them that can be decoded, and so take part: not what lies in lost packs."""

_TOUCHED = """
WITH known AS (SELECT tensor_id, dtype, shape, run FROM fingerprints),
touched AS (
    SELECT dtype, shape FROM known WHERE run > $since
    UNION ALL
    SELECT dtype, shape FROM known JOIN (
        SELECT base_id AS tensor_id FROM usable_blobs SEMI JOIN live USING (tensor_id)
        WHERE base_id IS NOT NULL
    ) USING (tensor_id) ANTI JOIN live USING (tensor_id)
)
SELECT DISTINCT dtype, shape FROM known
WHERE (dtype, shape) IN (SELECT (dtype, shape) FROM touched)
   OR (len(shape) > 1 AND (dtype, shape[2:]) IN (SELECT (dtype, shape[2:]) FROM touched
                                                 WHERE len(shape) > 1))
ORDER BY ALL
"""
"""Groups with arrivals since the last replan, or with bases that no file needs any more, and kin of
other row counts."""

_DESCRIBED = f"""
CREATE OR REPLACE TEMP TABLE described AS
SELECT row_number() OVER (ORDER BY s.tensor_id) AS arrival, s.tensor_id, s.dtype, s.shape, s.nbytes,
       any_value(f.standalone_ratio) AS standalone_ratio
FROM stored_tensors s JOIN fingerprints f USING (tensor_id)
WHERE s.dtype <> '{OPAQUE}'
GROUP BY s.tensor_id, s.dtype, s.shape, s.nbytes
"""


def replan_scope(
    connection: duckdb.DuckDBPyConnection, runs: Sequence[RunMarker], *, everything: bool
) -> list[GroupKey]:
    """Groups to plan again; makes the temporary table ``live`` of the tensors that files need.

    Parameters
    ----------
    connection : DuckDBPyConnection
        `Catalog.connect`.
    runs : sequence of RunMarker
        The committed runs, oldest first.
    everything : bool
        All groups, not only those that changed since the last replan that left nothing undone.
    """
    done = [run for run in runs if run.kind == "replan" and not run.counts.get("sets_left")]
    since = "" if everything or not done else done[-1].run_id
    connection.execute(_LIVE)
    rows = connection.execute(_TOUCHED, {"since": since}).fetchall()
    return [(dtype, tuple(shape)) for dtype, shape in rows]


def describe_scope(connection: duckdb.DuckDBPyConnection) -> None:
    """Make the temporary table ``described`` of ``stored_tensors``, as for new ones."""
    connection.execute(_DESCRIBED)
