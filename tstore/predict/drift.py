"""Does a fitted predictor still hold? Compare it with the deltas that were really stored."""

from __future__ import annotations

from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from tstore.catalog.schema import PAIRS
from tstore.predict.spread import spread_over_range
from tstore.predict.tensorpred import MIN_PAIRS, FitReport
from tstore.settings import SketchSettings
from tstore.sketch.distances import distance, pair_distances
from tstore.sketch.layout import SketchLayout

FACTOR = 2.0
"""A predictor has drifted when stored deltas miss it by this many times the error of its fit."""
SLACK = 0.003
"""Stored/raw that it may miss anyway: a fit to few clean pairs reports next to no error."""

_NEWEST_DELTAS = """
WITH stored AS (
    SELECT b.run, b.tensor_id AS target_id, b.base_id, b.raw_nbytes AS nbytes,
           b.nbytes / b.raw_nbytes AS ratio, p.predicted_ratio
    FROM blobs b
    JOIN plans p ON p.run = b.run AND p.tensor_id = b.tensor_id AND p.base_id = b.base_id
    WHERE b.dtype = $dtype AND b.codec = $codec AND b.raw_nbytes > 0
    AND (b.tensor_id, b.base_id) NOT IN
        (SELECT (target_id, base_id) FROM pairs WHERE dtype = $dtype AND codec = $codec)
)
FROM stored
WHERE run = (SELECT max(run) FROM (SELECT run FROM stored GROUP BY run HAVING count(*) >= $least))
ORDER BY target_id
"""


def drifted_pairs(
    connection: duckdb.DuckDBPyConnection,
    dtype: str,
    codec: str,
    report: FitReport,
    settings: SketchSettings,
    count: int,
) -> pa.Table:
    """Stored deltas to fit again on, if the predictor has drifted.

    A run that stored deltas measured them for free. The newest run with enough of them is
    looked at: earlier ones were predicted by earlier fits.

    Parameters
    ----------
    connection : DuckDBPyConnection
        `Catalog.connect`.
    dtype, codec : str
        What the predictor is for.
    report : FitReport
        Errors of its fit.
    settings : SketchSettings
    count : int
        How many pairs at most.

    Returns
    -------
    pyarrow.Table
        Rows `PAIRS`, spread over the range of predicted ratios; none when the predictor holds.
    """
    params = {"dtype": dtype, "codec": codec, "least": MIN_PAIRS}
    rows = connection.sql(_NEWEST_DELTAS, params=params).to_arrow_table()
    predicted = rows["predicted_ratio"].to_numpy()
    errors = np.abs(rows["ratio"].to_numpy() - predicted)
    if not errors.size or errors.mean() <= FACTOR * report.mae + SLACK:
        return PAIRS.empty_table()
    chosen = rows.take(spread_over_range(predicted, count)).to_pylist()
    return _as_pairs(connection, chosen, dtype, codec, settings)


def _as_pairs(
    connection: duckdb.DuckDBPyConnection,
    rows: list[dict[str, Any]],
    dtype: str,
    codec: str,
    settings: SketchSettings,
) -> pa.Table:
    """Add the distances of the sketches to stored deltas."""
    ids = sorted({row[end] for row in rows for end in ("target_id", "base_id")})
    found = connection.sql(
        "SELECT DISTINCT ON (tensor_id) tensor_id, sketch FROM fingerprints"
        " WHERE sketch IS NOT NULL AND tensor_id IN (SELECT unnest($ids))",
        params={"ids": ids},
    ).fetchall()
    place = {tensor_id: i for i, (tensor_id, _) in enumerate(found)}
    rows = [row for row in rows if row["target_id"] in place and row["base_id"] in place]
    if not rows:
        return PAIRS.empty_table()
    layout = SketchLayout.of(dtype, settings)
    targets, bases = (
        np.array([place[row[end]] for row in rows]) for end in ("target_id", "base_id")
    )
    nbytes = np.array([row["nbytes"] for row in rows])
    sketches = np.array([sketch for _, sketch in found], dtype=np.int16)
    groups = pair_distances(sketches, targets, bases, layout, nbytes)
    return pa.Table.from_pylist(
        [
            {
                **{name: row[name] for name in ("target_id", "base_id", "nbytes", "ratio")},
                "dtype": dtype,
                "codec": codec,
                "distance": float(p),
                "group_distance": of_groups.tolist(),
            }
            for row, p, of_groups in zip(rows, distance(groups, layout), groups.T, strict=True)
        ],
        PAIRS,
    )
