"""One group of tensors, how each is stored, and the distances that decide it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tstore.sketch.tensorsketch import distance

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Predictor: TypeAlias = Callable[[Floats], Floats]
"""Distances p to predicted stored/raw; non-decreasing, so that the nearest base is the best."""

STANDALONE = -1
BLOCK = 256
"""Tensors compared with the bases at a time."""
BASE_BLOCK = 1024
"""Bases compared at a time."""


@dataclass(frozen=True)
class Group:
    """What is known about the tensors of one dtype and shape.

    Attributes
    ----------
    sketches : int32 (n, d * w)
        New tensors, in order of arrival.
    standalone : float64 (n,)
        Their predicted stored/raw without a base.
    base_sketches : int32 (k, d * w)
        Tensors that are already stored whole.
    nbytes : int
        Size of each tensor.
    depth : int
        Rows d of the sketches.
    """

    sketches: NDArray[np.int32]
    standalone: Floats
    base_sketches: NDArray[np.int32]
    nbytes: int
    depth: int


@dataclass(frozen=True)
class Assignment:
    """How each new tensor of a group is stored.

    Attributes
    ----------
    base : int64 (n,)
        -1 for standalone, b < k for the stored base b, k + i for the new tensor i.
    ratio : float64 (n,)
        Predicted stored/raw of that choice.
    """

    base: Ints
    ratio: Floats


@dataclass
class Draft:
    """An assignment being improved.

    Tensors are named by row number (the i-th new tensor) or by id, the numbers that
    `Assignment.base` uses. Arrays of ids and rows are ascending.
    """

    group: Group
    predictor: Predictor
    min_gain: float
    base: Ints
    ratio: Floats

    @classmethod
    def of(
        cls, group: Group, assignment: Assignment, predictor: Predictor, min_gain: float
    ) -> Draft:
        """Start from a copy of `assignment`."""
        return cls(group, predictor, min_gain, assignment.base.copy(), assignment.ratio.copy())

    def assignment(self) -> Assignment:
        """Return the finished assignment."""
        return Assignment(self.base, self.ratio)

    # --- who is stored how ----------------------------------------------------------------

    @property
    def k(self) -> int:
        """Number of stored bases: the id of the new tensor i is k + i."""
        return len(self.group.base_sketches)

    def deltas(self) -> Ints:
        """Rows stored as deltas."""
        return np.flatnonzero(self.base != STANDALONE)

    def new_bases(self) -> Ints:
        """Rows stored whole."""
        return np.flatnonzero(self.base == STANDALONE)

    def bases(self) -> Ints:
        """Ids of everything stored whole."""
        return np.concatenate([np.arange(self.k), self.k + self.new_bases()])

    def members(self, row: int) -> Ints:
        """Rows stored as deltas of `row`."""
        return np.flatnonzero(self.base == self.k + row)

    def store_whole(self, rows: Ints) -> None:
        """Make `rows` bases."""
        self.base[rows] = STANDALONE
        self.ratio[rows] = self.group.standalone[rows]

    def join(self, rows: Ints, bases: Ints, ratio: Floats) -> None:
        """Make `rows` deltas of the ids `bases`, one each or one for all."""
        self.base[rows] = bases
        self.ratio[rows] = ratio

    # --- distances and predictions --------------------------------------------------------

    def distances(self, a: Ints, b: Ints) -> Floats:
        """Share of differing bits for all pairs of ids."""
        return distance(self._sketches(a), self._sketches(b), self.group.depth, self.group.nbytes)

    def _sketches(self, ids: Ints) -> NDArray[np.int32]:
        stored = self.group.base_sketches[ids[ids < self.k]]
        return np.concatenate([stored, self.group.sketches[ids[ids >= self.k] - self.k]])

    def nearest(self, rows: Ints, bases: Ints) -> tuple[Ints, Floats]:
        """Nearest base id of each row other than itself, the lowest on a tie, and its distance.

        Where there is none: -1 at infinite distance.
        """
        near = np.full(rows.size, -1, dtype=np.int64)
        p = np.full(rows.size, np.inf)
        for i in range(0, rows.size, BLOCK):
            part = slice(i, i + BLOCK)
            own = self.k + rows[part]
            for j in range(0, bases.size, BASE_BLOCK):
                ids = bases[j : j + BASE_BLOCK]
                block = self.distances(own, ids)
                block[own[:, None] == ids] = np.inf
                best = block.argmin(axis=1)
                lowest = block[np.arange(own.size), best]
                closer = lowest < p[part]
                near[part][closer], p[part][closer] = ids[best[closer]], lowest[closer]
        return near, p

    def predict(self, p: Floats) -> Floats:
        """Ratio of deltas at distances `p`; infinite where there is no base."""
        return np.where(np.isinf(p), np.inf, self.predictor(p))

    def predict_pairs(self, rows: Ints, candidates: Ints) -> Floats:
        """Ratio of each row as a delta of each candidate row; infinite against itself."""
        ratio = np.empty((rows.size, candidates.size))
        for i in range(0, rows.size, BLOCK):
            part = slice(i, i + BLOCK)
            ratio[part] = self.predictor(self.distances(self.k + rows[part], self.k + candidates))
        ratio[rows[:, None] == candidates] = np.inf
        return ratio

    def or_standalone(self, rows: Ints, ratio: Floats) -> tuple[Floats, NDArray[np.bool_]]:
        """What `rows` cost when offered deltas of `ratio`, and whether they take them.

        `ratio` is (rows,) or (rows, choices). A delta is taken from a gain of `min_gain` on.
        """
        whole = self.group.standalone[rows].reshape(-1, *[1] * (ratio.ndim - 1))
        taken = ratio <= whole - self.min_gain
        return np.where(taken, ratio, whole), taken
