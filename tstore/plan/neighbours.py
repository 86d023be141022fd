"""Nearest sketches among thousands: an approximate index (TStore, §5.1)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tstore.plan.problem import Ints
from tstore.sketch.layout import SketchLayout

FOLD = 16
"""Buckets added up into one number: a count sketch of a sixteenth of the width, whose distances err
by 9 % instead of 2. Enough to propose candidates, which are then priced with the whole sketch."""
BREADTH = 128
"""Candidates that HNSW keeps in view while it builds and searches."""
_LEVELS = 127
_SPREAD = 4.0
"""Standard deviations that int8 spans; what lies beyond is clipped."""


class NeighbourIndex:
    """HNSW (Malkov and Yashunin) over folded sketches, in int8.

    One thread builds and asks it, so that equal input gives an equal index.

    Parameters
    ----------
    sketches : int16 (n, d * w)
        By id.
    layout : SketchLayout
    """

    def __init__(self, sketches: NDArray[np.int16], layout: SketchLayout) -> None:
        from usearch.index import Index  # only large groups need it

        self._sketches = sketches
        dims = sketches.shape[1] // FOLD
        self._index = Index(
            ndim=dims,
            metric="l2sq",
            dtype="i8",
            expansion_add=BREADTH,
            expansion_search=BREADTH,
        )
        self._known = np.zeros(len(sketches), dtype=bool)
        sample = self._folded(np.linspace(0, len(sketches) - 1, 256).astype(np.int64))
        self._scale = _LEVELS / (_SPREAD * max(float(sample.std()), 1.0))

    def extend_to(self, ids: Ints) -> bool:
        """Take in those of `ids` that are not in yet; False if others are in already."""
        wanted = np.zeros_like(self._known)
        wanted[ids] = True
        if (self._known & ~wanted).any():
            return False
        new = np.flatnonzero(wanted & ~self._known)
        if new.size:
            self._index.add(new, self._quantised(new), threads=1)
            self._known[new] = True
        return True

    def nearest(self, targets: Ints, count: int) -> Ints:
        """Ids near each target, nearest first, (m, count); -1 where there are no more."""
        found = np.full((targets.size, count), -1, dtype=np.int64)
        if len(self._index) == 0 or targets.size == 0:
            return found
        matches = self._index.search(self._quantised(targets), count, threads=0)
        keys = np.asarray(matches.keys).reshape(targets.size, -1).astype(np.int64)
        counts = np.broadcast_to(getattr(matches, "counts", keys.shape[1]), targets.size)
        kept = np.arange(keys.shape[1]) < counts[:, None]
        found[:, : keys.shape[1]] = np.where(kept, keys, -1)
        return found

    def _folded(self, ids: Ints) -> NDArray[np.int64]:
        parts = self._sketches[ids].reshape(len(ids), -1, FOLD)
        sums: NDArray[np.int64] = parts.sum(axis=2, dtype=np.int64)
        return sums

    def _quantised(self, ids: Ints) -> NDArray[np.int8]:
        levels = np.rint(self._folded(ids) * self._scale)
        small: NDArray[np.int8] = np.clip(levels, -_LEVELS, _LEVELS).astype(np.int8)
        return small
