"""Tensors that may be bases of one another: same dtype, same shape (TStore, §5.1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
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
"""Groups by dtype and shape."""


@dataclass(frozen=True)
class GroupRows:
    """Where the fingerprints of a group lie: what a `SketchGroup` is read from.

    Attributes
    ----------
    dtype : str
    shape : tuple of int
    nbytes : int
        Raw bytes of each tensor.
    rows : int64 (n,)
        Rows of `FingerprintParts`, in the order that the tensors of the group are to have.
    """

    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    rows: NDArray[np.int64]

    @property
    def key(self) -> GroupKey:
        """dtype and shape."""
        return self.dtype, self.shape

    def some(self, count: int) -> GroupRows:
        """At most `count` of the tensors; see `evenly`."""
        return replace(self, rows=self.rows[evenly(self.rows.size, count)])


def evenly(n: int, count: int) -> NDArray[np.int64]:
    """At most `count` of the numbers from 0 to n - 1, evenly spaced, ascending."""
    return np.unique(np.linspace(0, n - 1, min(n, count)).astype(np.int64))
