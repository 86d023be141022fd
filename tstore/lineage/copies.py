"""Copies of a model in another dtype: rounded, or widened.

Sketches of two widths do not compare. But f32 and bf16 have the same sign and exponent, so the
entropies of the highest byte plane stay the same but for the few values that are rounded to
another exponent, in each tensor: with a hundred tensors, that is a fingerprint.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tstore.hub.names import name_tail
from tstore.lineage.models import Occurrences
from tstore.settings import KIB

WIDE, NARROW = "F32", "BF16"
MAX_ENTROPY_GAP = 0.01
"""Mean difference in bits per byte; copies are at 0.002 to 0.006, fine-tunes of them beyond."""
MIN_TENSORS = 8
MIN_SHARED = 0.5


@dataclass(frozen=True)
class Copy:
    """One model in two dtypes.

    Attributes
    ----------
    wide, narrow : int
        Index of the f32 and of the bf16 model; of bit-identical ones the first.
    widened : bool
        Whether the f32 model has nothing in its low bytes: it was made from the bf16 one. Else
        it has what the other lacks.
    """

    wide: int
    narrow: int
    widened: bool


def find_copies(found: Occurrences) -> list[Copy]:
    """Models that are the same in f32 and in bf16, each the other's nearest."""
    wide, narrow = ([i for i, m in enumerate(found.models) if m.dtype == d] for d in (WIDE, NARROW))
    if not wide or not narrow:
        return []
    places = _places(found)
    gap, shared = np.zeros((len(wide), len(narrow))), np.zeros((len(wide), len(narrow)))
    n_places = places.max(initial=-1) + 1
    a, b = (
        _by_place(found, places, n_places, models, dtype)
        for models, dtype in ((wide, WIDE), (narrow, NARROW))
    )
    for row, entropies in enumerate(a):
        apart = np.abs(b - entropies)
        both = ~np.isnan(apart)
        shared[row] = both.sum(axis=1)
        gap[row] = np.where(both, apart, 0.0).sum(axis=1)
    least = np.minimum.outer((~np.isnan(a)).sum(axis=1), (~np.isnan(b)).sum(axis=1))
    enough = (shared >= MIN_TENSORS) & (shared >= MIN_SHARED * least)
    mean = np.divide(gap, shared, out=np.full(gap.shape, np.inf), where=enough)
    copies = []
    for row, column in enumerate(mean.argmin(axis=1)):
        if mean[row, column] <= MAX_ENTROPY_GAP and mean[:, column].argmin() == row:
            at = (found.model == wide[row]) & (found.nbytes >= KIB)
            widened = bool(np.median(found.low[at]) == 0.0) if at.any() else False
            copies.append(Copy(wide[row], narrow[int(column)], widened))
    return copies


def _places(found: Occurrences) -> NDArray[np.int64]:
    """Number of the place of each tensor, whatever its dtype: name and number of elements."""
    width = {WIDE: 4, NARROW: 2}
    keys = [
        (name_tail(name), nbytes // width.get(found.dtypes[place], 1))
        for name, nbytes, place in zip(
            found.names, found.nbytes.tolist(), found.place.tolist(), strict=True
        )
    ]
    number = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    return np.array([number[key] for key in keys], dtype=np.int64)


def _by_place(
    found: Occurrences, places: NDArray[np.int64], n_places: int, models: list[int], dtype: str
) -> NDArray[np.float64]:
    """Entropy of the tensor in each place, (models, places); nan where there is none."""
    table = np.full((len(found.models), n_places), np.nan)
    ours = np.array([d == dtype for d in found.dtypes])[found.place]
    table[found.model[ours], places[ours]] = found.entropy[ours]
    return table[models]
