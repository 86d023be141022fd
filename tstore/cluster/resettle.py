"""What comes out of a replan: which moves are kept, and the rows of the run."""

from __future__ import annotations

import duckdb
import pyarrow as pa

from tstore.catalog.schema import BLOBS, PLANS, SAVINGS
from tstore.errors import PlanInvariantError

_SETTLE = """
DELETE FROM encoded WHERE tensor_id NOT IN (
    SELECT tensor_id FROM moves WHERE "set" IN (
        SELECT m."set" FROM moves m LEFT JOIN encoded e USING (tensor_id)
        GROUP BY m."set"
        HAVING bool_and(e.tensor_id IS NOT NULL OR m.new_nbytes = 0)
           AND sum(coalesce(e.nbytes, 0)) < sum(m.old_nbytes)
    )
)
"""
"""Sets of moves of which a tensor could not be read, or that save nothing after all, are not made."""

_OUTCOME = """
SELECT count(*), coalesce(sum(e.nbytes), 0),
       coalesce(sum(m.old_nbytes) FILTER (e.tensor_id IS NOT NULL OR m.new_nbytes = 0), 0)
FROM moves m LEFT JOIN encoded e USING (tensor_id)
WHERE m."set" IN (SELECT "set" FROM moves SEMI JOIN encoded USING (tensor_id))
"""

_TOO_DEEP = """
WITH after AS (
    SELECT tensor_id, base_id FROM encoded
    UNION ALL
    SELECT tensor_id, base_id FROM current_blobs ANTI JOIN encoded USING (tensor_id)
)
SELECT d.tensor_id, d.base_id FROM after d LEFT JOIN after b ON b.tensor_id = d.base_id
WHERE b.base_id IS NOT NULL
   OR (d.base_id IS NOT NULL AND b.tensor_id IS NULL
       AND d.tensor_id IN (SELECT tensor_id FROM usable_blobs)) LIMIT 1
"""
"""Also of what cannot be read now: a backup may bring its pack back."""

_ROLES = """
CREATE OR REPLACE TEMP VIEW roles AS
SELECT e.*, CASE WHEN base_id IS NOT NULL THEN 'delta'
                 WHEN tensor_id IN (SELECT base_id FROM encoded) THEN 'base'
                 ELSE 'alone' END AS role
FROM encoded e
"""

_PLANS = """
SELECT p.tensor_id, p.dtype, p.nbytes, r.role, r.base_id, r.codec,
       CASE WHEN r.base_id IS NOT DISTINCT FROM p.base_id THEN p.predicted_ratio
            ELSE p.standalone_ratio END AS predicted_ratio,
       p.standalone_ratio
FROM planned p JOIN roles r USING (tensor_id)
"""

_SAVINGS = """
WITH place AS (
    SELECT DISTINCT ON (tensor_id) tensor_id, repo, revision
    FROM tensors SEMI JOIN encoded USING (tensor_id) ORDER BY tensor_id, run, repo, revision
),
was AS (
    SELECT b.tensor_id, b.dtype, b.codec, b.raw_nbytes, b.nbytes, b.base_id,
           min(first.run) AS run
    FROM usable_blobs b SEMI JOIN encoded USING (tensor_id)
    JOIN blobs first ON first.tensor_id = b.tensor_id AND first.checksum = b.checksum
    GROUP BY ALL
),
booked AS (
    SELECT tensor_id, dtype,
           CASE WHEN base_id IS NOT NULL THEN 'delta'
                WHEN (tensor_id, run) IN (SELECT (base_id, run) FROM blobs) THEN 'base'
                ELSE 'alone' END AS role,
           codec, -1 AS sign, raw_nbytes AS raw, nbytes AS predicted, nbytes AS stored
    FROM was
    UNION ALL
    SELECT r.tensor_id, r.dtype, r.role, r.codec, 1, r.raw_nbytes,
           CAST(round(p.predicted_ratio * p.nbytes) AS BIGINT), r.nbytes
    FROM roles r JOIN planned p USING (tensor_id)
)
SELECT place.repo, place.revision, dtype, role, codec, sum(sign) AS n_extents,
       sum(sign * raw) AS bytes_in, sum(sign * raw) AS bytes_after_dedup,
       sum(sign * predicted) AS bytes_predicted, sum(sign * stored) AS bytes_stored
FROM booked JOIN place USING (tensor_id) GROUP BY ALL
"""
"""What the run that encoded a tensor booked is taken back (gc may have copied the blob since), and booked
anew where it is now: so sums over all runs are those of what is stored."""


def settle(connection: duckdb.DuckDBPyConnection) -> dict[str, int]:
    """Take out of the table ``encoded`` the moves that are not made; totals of the others.

    Parameters
    ----------
    connection : DuckDBPyConnection
        With the tables ``moves`` and ``encoded``.
    """
    connection.execute(_SETTLE)
    ((moves, new, old),) = connection.sql(_OUTCOME).fetchall()
    ((before,),) = connection.sql(
        "SELECT coalesce(sum(b.nbytes), 0) FROM planned p JOIN usable_blobs b USING (tensor_id)"
    ).fetchall()
    return {"moves_made": int(moves), "bytes_after": int(before - old + new)}


def check_depth(connection: duckdb.DuckDBPyConnection) -> None:
    """`PlanInvariantError` if a delta would be left with a base that is not stored whole."""
    for tensor_id, base_id in connection.sql(_TOO_DEEP).fetchall():
        raise PlanInvariantError(
            f"expected the base {base_id} of {tensor_id} to stay stored without a base, found that "
            "it would not; nothing was committed, please report it"
        )


def replan_tables(connection: duckdb.DuckDBPyConnection, pairs: pa.Table) -> dict[str, pa.Table]:
    """Rows that the run adds."""
    connection.execute(_ROLES)
    return {
        "blobs": connection.table("encoded").to_arrow_table().cast(BLOBS),
        "plans": connection.sql(_PLANS).to_arrow_table().cast(PLANS),
        "savings": connection.sql(_SAVINGS).to_arrow_table().cast(SAVINGS),
        "pairs": pairs,
    }
