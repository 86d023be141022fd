"""From measured pairs, as rows of the catalog, to the predictor of a dtype."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tstore.predict.tensorpred import Measured, TensorPred, fit
from tstore.settings import SketchSettings
from tstore.sketch.layout import SketchLayout


def fit_pairs(pairs: pa.Table, dtype: str, codec: str, sketch: SketchSettings) -> TensorPred:
    """Fit TensorPred to the pairs of one dtype.

    Parameters
    ----------
    pairs : pyarrow.Table
        Rows ``pairs`` of one codec; those of other dtypes are left out. Their order does not
        matter.
    dtype, codec : str
    sketch : SketchSettings
        Of the sketches whose distances the rows have.
    """
    rows = pairs.filter(pc.equal(pairs["dtype"], dtype))
    rows = rows.sort_by([("target_id", "ascending"), ("base_id", "ascending")])
    layout = SketchLayout.of(dtype, sketch)
    flat = pc.list_flatten(rows["group_distance"]).to_numpy()
    measured = Measured(
        p=np.ascontiguousarray(flat.reshape(-1, layout.n_groups).T),
        ratio=rows["ratio"].to_numpy(),
        nbytes=rows["nbytes"].to_numpy(),
    )
    return fit(dtype, codec, layout.shares, measured)
