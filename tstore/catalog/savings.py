"""Rows of the table ``savings``: where the bytes of a run went."""

from __future__ import annotations

import duckdb
import pyarrow as pa

from tstore.catalog.schema import SAVINGS

_SAVINGS = r"""
WITH occurrence AS (
    SELECT repo, revision, x.tensor_id, x.nbytes,
           row_number() OVER (PARTITION BY x.tensor_id ORDER BY repo, revision, path, position)
               AS nth
    FROM (
        SELECT repo, revision, path, unnest(layout) AS x,
               generate_subscripts(layout, 1) AS position
        FROM taken_files
    )
),
joined AS (
    SELECT o.*, nth = 1 AND b.tensor_id IS NOT NULL AS is_first,
           regexp_extract(o.tensor_id, ':([A-Z0-9_]+)\[', 1) AS dtype,
           b.base_id, b.codec AS blob_codec, b.nbytes AS stored,
           p.predicted_ratio * p.nbytes AS predicted
    FROM occurrence o
    LEFT JOIN run_blobs b USING (tensor_id)
    LEFT JOIN run_plans p USING (tensor_id)
),
described AS (
    SELECT *,
           CASE WHEN NOT is_first THEN 'duplicate'
                WHEN base_id IS NOT NULL THEN 'delta'
                WHEN dtype = 'OPAQUE' THEN 'opaque'
                WHEN tensor_id IN (SELECT base_id FROM run_blobs WHERE base_id IS NOT NULL)
                    THEN 'base'
                ELSE 'alone' END AS role,
           CASE WHEN is_first THEN blob_codec ELSE 'none' END AS codec
    FROM joined
)
SELECT repo, revision, dtype, role, codec,
       count(*) AS n_extents,
       sum(nbytes) AS bytes_in,
       sum(CASE WHEN is_first THEN nbytes ELSE 0 END) AS bytes_after_dedup,
       sum(CASE WHEN is_first THEN round(predicted) ELSE 0 END) AS bytes_predicted,
       sum(CASE WHEN is_first THEN stored ELSE 0 END) AS bytes_stored
FROM described
GROUP BY ALL
"""


def summarise(connection: duckdb.DuckDBPyConnection) -> pa.Table:
    """Bytes of a run by repository, dtype, role and codec.

    What a tensor costs is booked on its first occurrence; every other is a ``duplicate``.

    Parameters
    ----------
    connection : DuckDBPyConnection
        With the tables or views ``taken_files`` (rows ``files`` that the run took in, none carried
        over), ``run_plans`` and ``run_blobs``.
    """
    return connection.sql(_SAVINGS).to_arrow_table().cast(SAVINGS)
