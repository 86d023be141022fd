"""Plan rows of all new extents, in DuckDB: most of a hub is never a Python object."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds

from tstore.ids import OPAQUE
from tstore.settings import PlanSettings

_PLANNED = f"""
CREATE OR REPLACE TEMP TABLE planned AS
SELECT d.tensor_id, d.dtype, d.nbytes,
       CASE WHEN d.dtype = '{OPAQUE}' THEN 'opaque' ELSE coalesce(c.role, 'alone') END AS role,
       c.base_id,
       coalesce(c.codec, CASE WHEN d.dtype = '{OPAQUE}' THEN $opaque ELSE $alone END) AS codec,
       coalesce(c.predicted_ratio, d.standalone_ratio) AS predicted_ratio,
       d.standalone_ratio, d.arrival
FROM described d LEFT JOIN choices c USING (tensor_id)
"""


def write_plans(
    connection: duckdb.DuckDBPyConnection, choices: ds.Dataset | pa.Table, settings: PlanSettings
) -> None:
    """Make the temporary table ``planned``: the columns of ``plans``, and arrival.

    Parameters
    ----------
    connection : DuckDBPyConnection
        With the table ``described``; see `stage_fingerprints`.
    choices : Dataset or Table
        What `plan_groups` chose for some of the tensors; all others are stored alone.
    settings : PlanSettings
    """
    connection.register("choices", choices)
    codecs = {"opaque": settings.opaque_codec, "alone": settings.standalone_codec}
    connection.execute(_PLANNED, codecs)
    connection.unregister("choices")
