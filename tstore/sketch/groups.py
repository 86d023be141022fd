"""Tensors that may be bases of one another: same dtype, same shape (TStore, §5.1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

GroupKey: TypeAlias = tuple[str, tuple[int, ...]]
"""dtype and shape."""


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
    sketches : ndarray of int16, shape (n, depth * width)
    standalone : ndarray of float64, shape (n,)
        Predicted stored/raw without a base.
    """

    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    ids: tuple[str, ...]
    sketches: NDArray[np.int16]
    standalone: NDArray[np.float64]

    def take(self, rows: NDArray[np.int64]) -> SketchGroup:
        """Return some of the tensors."""
        return SketchGroup(
            dtype=self.dtype,
            shape=self.shape,
            nbytes=self.nbytes,
            ids=tuple(self.ids[row] for row in rows),
            sketches=self.sketches[rows],
            standalone=self.standalone[rows],
        )


Groups: TypeAlias = Mapping[GroupKey, SketchGroup]
"""Groups by dtype and shape, each made when it is asked for: all sketches of a hub may not fit."""


class TableGroups(Groups):
    """Groups of the sketched rows of a table, in the order of their first tensor.

    Parameters
    ----------
    rows : pyarrow.Table
        Columns tensor_id, dtype, shape, nbytes, sketch, standalone_ratio.
    """

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows
        self._members: dict[GroupKey, list[int]] = {}
        sketched = pc.is_valid(rows["sketch"]).to_pylist()
        columns = (rows["dtype"].to_pylist(), rows["shape"].to_pylist(), sketched)
        for row, (dtype, shape, valid) in enumerate(zip(*columns, strict=True)):
            if valid:
                self._members.setdefault((dtype, tuple(shape)), []).append(row)

    def __getitem__(self, key: GroupKey) -> SketchGroup:
        rows = self._rows.take(self._members[key])
        flat = pc.list_flatten(rows["sketch"]).combine_chunks().to_numpy()
        return SketchGroup(
            dtype=key[0],
            shape=key[1],
            nbytes=rows["nbytes"][0].as_py(),
            ids=tuple(rows["tensor_id"].to_pylist()),
            sketches=flat.reshape(rows.num_rows, -1),
            standalone=rows["standalone_ratio"].to_numpy(),
        )

    def __iter__(self) -> Iterator[GroupKey]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)
