"""Which pairs of tensors to measure before the predictor is fitted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tstore.predict.spread import cover_range
from tstore.settings import KIB, SketchSettings
from tstore.sketch.distances import distance, group_distances, one_blas_thread
from tstore.sketch.groups import SketchGroup
from tstore.sketch.layout import SketchLayout

MIN_MEASURED_NBYTES = 64 * KIB
"""Below, tables and headers weigh more than the distance does."""
MAX_MEMBERS = 64
"""Members of a group whose distances are looked at; evenly spaced in arrival order."""


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
    with one_blas_thread():
        candidates = [_candidates(new, stored, settings) for new, stored in groups]
    candidates = [c for c in candidates if c.distance.size]
    candidates = [c for c in candidates if c.nbytes >= MIN_MEASURED_NBYTES] or candidates
    if not candidates:
        return []
    flat = np.concatenate([c.distance for c in candidates])
    starts = np.cumsum([0, *(c.distance.size for c in candidates)])
    pairs = []
    for index in cover_range(flat, known, count):
        number = int(np.searchsorted(starts, index, side="right")) - 1
        pairs.append(candidates[number].pair(int(index - starts[number])))
    return pairs


@dataclass(frozen=True)
class _Candidates:
    """Pairs of some members of one group."""

    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    ids: tuple[str, ...]
    targets: NDArray[np.int64]
    bases: NDArray[np.int64]
    distance: NDArray[np.float64]
    group_distance: NDArray[np.float64]  # (plane groups, pairs)

    def pair(self, index: int) -> Pair:
        return Pair(
            dtype=self.dtype,
            shape=self.shape,
            target_id=self.ids[self.targets[index]],
            base_id=self.ids[self.bases[index]],
            nbytes=self.nbytes,
            distance=float(self.distance[index]),
            group_distance=tuple(map(float, self.group_distance[:, index])),
        )


def _candidates(
    new: SketchGroup, stored: SketchGroup | None, settings: SketchSettings
) -> _Candidates:
    layout = SketchLayout.of(new.dtype, settings)
    parts = [_some(new)] if stored is None else [_some(stored), _some(new)]
    ids = tuple(name for part in parts for name in part.ids)
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
        ids=ids,
        targets=targets,
        bases=bases,
        distance=distance(apart, layout),
        group_distance=apart,
    )


def _some(group: SketchGroup) -> SketchGroup:
    """At most `MAX_MEMBERS`, evenly spaced."""
    n = len(group.ids)
    return group.take(np.unique(np.linspace(0, n - 1, min(n, MAX_MEMBERS)).astype(np.int64)))
