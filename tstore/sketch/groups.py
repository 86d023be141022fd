"""Tensors that may be bases of one another: same dtype, same shape (TStore, §5.1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray


@dataclass(frozen=True)
class SketchGroup:
    """Sketched tensors of one dtype and shape.

    Attributes
    ----------
    dtype : str
    shape : tuple of int
    nbytes : int
        Raw bytes of each.
    ids : tuple of str
        Tensor ids, in the order of the rows that they came from.
    sketches : ndarray of int32, shape (n, depth * width)
    standalone : ndarray of float64, shape (n,)
        Predicted stored/raw without a base.
    """

    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    ids: tuple[str, ...]
    sketches: NDArray[np.int32]
    standalone: NDArray[np.float64]


def group_by_shape(rows: pa.Table) -> list[SketchGroup]:
    """Groups of the sketched rows, in the order of their first tensor.

    Parameters
    ----------
    rows : pyarrow.Table
        Columns tensor_id, dtype, shape, nbytes, sketch, standalone_ratio.
    """
    rows = rows.filter(pc.is_valid(rows["sketch"])).combine_chunks()
    members: dict[tuple[str, tuple[int, ...]], list[int]] = {}
    keys = zip(rows["dtype"].to_pylist(), rows["shape"].to_pylist(), strict=True)
    for row, (dtype, shape) in enumerate(keys):
        members.setdefault((dtype, tuple(shape)), []).append(row)
    return [_group(rows.take(indices), key) for key, indices in members.items()]


def _group(rows: pa.Table, key: tuple[str, tuple[int, ...]]) -> SketchGroup:
    flat = pc.list_flatten(rows["sketch"]).combine_chunks().to_numpy()
    return SketchGroup(
        dtype=key[0],
        shape=key[1],
        nbytes=rows["nbytes"][0].as_py(),
        ids=tuple(rows["tensor_id"].to_pylist()),
        sketches=flat.reshape(rows.num_rows, -1),
        standalone=rows["standalone_ratio"].to_numpy(),
    )
