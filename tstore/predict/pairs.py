"""Which pairs of tensors to measure before the predictor is fitted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tstore.predict.spread import cover_range, spread_over_range
from tstore.settings import KIB, SketchSettings
from tstore.sketch.distances import distance, group_distances, one_blas_thread
from tstore.sketch.groups import SketchGroup, evenly
from tstore.sketch.layout import SketchLayout

MIN_MEASURED_NBYTES = 64 * KIB
"""Below, tables and headers weigh more than the distance does."""
MAX_MEMBERS = 64
"""Members of a group whose distances are looked at; evenly spaced in arrival order."""
MAX_CANDIDATES = 1 << 17
"""Pairs to choose from that are kept; when there are more, half of them go."""


@dataclass(frozen=True)
class Pair:
    """Two tensors of a group and the distance of their sketches, whole and per plane group."""

    dtype: str
    shape: tuple[int, ...]
    target_id: str
    base_id: str
    nbytes: int
    distance: float
    group_distance: tuple[float, ...]


def choose_pairs(
    groups: Iterable[tuple[SketchGroup, SketchGroup | None]],
    settings: SketchSettings,
    known: NDArray[np.float64],
    count: int,
) -> list[Pair]:
    """Pairs of one dtype to measure, so that all distances of this hub are known about.

    Parameters
    ----------
    groups : iterable of (SketchGroup, SketchGroup or None)
        New tensors, and those of the same shape that the store holds whole. A target is new.
    settings : SketchSettings
        Of the sketches.
    known : float64 (n,)
        Distances of the pairs that earlier runs measured.
    count : int
        Pairs that cover the whole range; fewer are chosen where it is covered.
    """
    sample = _Sample()
    with one_blas_thread():
        for new, stored in groups:
            sample.add(_candidates(new, stored, settings))
    flat = sample.distances()
    return [sample.pair(int(index)) for index in cover_range(flat, known, count)]


@dataclass(frozen=True)
class _Candidates:
    """Pairs of some members of one group."""

    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    targets: NDArray[np.object_]
    bases: NDArray[np.object_]
    distance: NDArray[np.float64]
    group_distance: NDArray[np.float64]  # (plane groups, pairs)

    def take(self, rows: NDArray[np.int64]) -> _Candidates:
        return replace(
            self,
            targets=self.targets[rows],
            bases=self.bases[rows],
            distance=self.distance[rows],
            group_distance=self.group_distance[:, rows],
        )

    def pair(self, index: int) -> Pair:
        return Pair(
            dtype=self.dtype,
            shape=self.shape,
            target_id=self.targets[index],
            base_id=self.bases[index],
            nbytes=self.nbytes,
            distance=float(self.distance[index]),
            group_distance=tuple(map(float, self.group_distance[:, index])),
        )


class _Sample:
    """Pairs to choose from: all of them, or so many that they still cover the range evenly.

    Those of tensors below `MIN_MEASURED_NBYTES` are kept only as long as there are no others.
    """

    def __init__(self) -> None:
        self._parts: list[_Candidates] = []
        self._size = 0
        self._large = False

    def add(self, found: _Candidates) -> None:
        """Take in the pairs of one group."""
        large = found.nbytes >= MIN_MEASURED_NBYTES
        if not found.distance.size or self._large > large:
            return
        if large > self._large:
            self._parts, self._size = [], 0
        self._large = large
        self._parts.append(found)
        self._size += found.distance.size
        if self._size > MAX_CANDIDATES:
            self._thin()

    def distances(self) -> NDArray[np.float64]:
        """Of all pairs, one after the other."""
        return np.concatenate([np.empty(0), *(part.distance for part in self._parts)])

    def pair(self, index: int) -> Pair:
        """One of the pairs, by its place in `distances`."""
        (part,), (row,) = self._at(np.array([index]))
        found: _Candidates = self._parts[part]
        return found.pair(int(row))

    def _thin(self) -> None:
        part, row = self._at(spread_over_range(self.distances(), MAX_CANDIDATES // 2))
        kept = np.unique(part)
        bounds = zip(np.searchsorted(part, kept), np.searchsorted(part, kept, "right"), strict=True)
        self._parts = [
            self._parts[number].take(row[start:stop])
            for number, (start, stop) in zip(kept, bounds, strict=True)
        ]
        self._size = part.size

    def _at(self, index: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Part and row of some pairs."""
        starts = np.cumsum([0, *(part.distance.size for part in self._parts)])
        part = np.searchsorted(starts, index, side="right") - 1
        return part, index - starts[part]


def _candidates(
    new: SketchGroup, stored: SketchGroup | None, settings: SketchSettings
) -> _Candidates:
    layout = SketchLayout.of(new.dtype, settings)
    parts = [_some(new)] if stored is None else [_some(stored), _some(new)]
    ids = np.array([name for part in parts for name in part.ids], dtype=np.object_)
    bases, targets = np.triu_indices(len(ids), k=1)
    are_new = targets >= len(ids) - len(parts[-1].ids)
    bases, targets = bases[are_new], targets[are_new]
    sketches = np.concatenate([part.sketches for part in parts])
    matrix = group_distances(sketches, sketches, layout, new.nbytes)
    apart = matrix[:, bases, targets]
    return _Candidates(
        dtype=new.dtype,
        shape=new.shape,
        nbytes=new.nbytes,
        targets=ids[targets],
        bases=ids[bases],
        distance=distance(apart, layout),
        group_distance=apart,
    )


def _some(group: SketchGroup) -> SketchGroup:
    """At most `MAX_MEMBERS`, evenly spaced."""
    return group.take(evenly(len(group.ids), MAX_MEMBERS))
