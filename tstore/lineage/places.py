"""Tensors that lie in the same place of different models, and how far they are apart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tstore.lineage.models import Occurrences
from tstore.plan.placed import batched
from tstore.plan.resized import MAX_GROWTH
from tstore.settings import SketchSettings
from tstore.sketch.distances import distance, group_distances, one_blas_thread
from tstore.sketch.groups import GroupRows
from tstore.sketch.layout import SketchLayout
from tstore.sketch.parts import FingerprintParts

BATCH_ROWS = 4 * 1024
"""Sketches in memory: 32 MiB at the default size. A larger place is alone."""
TARGETS = 256
"""Rows of a block of distances."""
_LEADING = {
    1: (0.0, 1.0),
    2: (0.0, 1 / 3, 1 / 3, 1 / 3),
    4: (0.0, 0.0, 1 / 3, 1 / 3, 1 / 3),
    8: (0.0, 0.0, 0.25, 0.25, 0.5),
}
"""Weights of the plane groups in the distance of leading bits, by bytes per element: sign,
exponent and the first three mantissa bits of bf16 and f32."""


@dataclass(frozen=True)
class Place:
    """Tensors in one place of some models.

    Attributes
    ----------
    at : int64 (n,)
        Which of the occurrences they are.
    targets : int64 (m,)
        Those of `at` that the others are compared with.
    share : float64 (m, n)
        Share of differing bits; nan where two cannot be compared.
    leading : float64 (m, n)
        The same of the leading bits.
    """

    at: NDArray[np.int64]
    targets: NDArray[np.int64]
    share: NDArray[np.float64]
    leading: NDArray[np.float64]


def each_place(
    found: Occurrences,
    parts: FingerprintParts,
    sketch: SketchSettings,
    wanted: NDArray[np.bool_],
    targets: NDArray[np.bool_],
) -> Iterator[Place]:
    """Places that a target and at least one other of the wanted models have, a few at a time.

    Parameters
    ----------
    found : Occurrences
    parts : FingerprintParts
    sketch : SketchSettings
        Of the sketches.
    wanted, targets : bool (models,)
        Models to look at, and those of them to compare with all others.
    """
    inside = np.flatnonzero(wanted[found.model])
    order = inside[np.argsort(found.place[inside], kind="stable")]
    starts = np.flatnonzero(np.diff(found.place[order], prepend=-1))
    groups = [
        at
        for at in np.split(order, starts[1:])
        if at.size and np.ptp(found.model[at]) > 0 and targets[found.model[at]].any()
    ]
    with one_blas_thread():
        for batch in batched(groups, lambda at: at.size, BATCH_ROWS):
            yield from _compared(batch, found, parts, sketch, targets)


def _compared(
    batch: list[NDArray[np.int64]],
    found: Occurrences,
    parts: FingerprintParts,
    sketch: SketchSettings,
    targets: NDArray[np.bool_],
) -> Iterator[Place]:
    """The places of a batch, whose sketches are read in one pass."""
    sketched = [(found.row[at] >= 0).all() for at in batch]
    unique = [
        np.unique(found.row[at], return_inverse=True)
        for at, has in zip(batch, sketched, strict=True)
        if has
    ]
    firsts = [at[0] for at, has in zip(batch, sketched, strict=True) if has]
    wanted = [
        GroupRows(found.dtypes[found.place[first]], (), int(found.nbytes[first]), rows)
        for first, (rows, _) in zip(firsts, unique, strict=True)
    ]
    read = iter(zip(parts.read(wanted), unique, strict=True)) if wanted else iter(())
    for at, has in zip(batch, sketched, strict=True):
        chosen = np.flatnonzero(targets[found.model[at]])
        if has:
            group, (_, content) = next(read)
            layout = SketchLayout.of(group.dtype, sketch)
            yield Place(at, chosen, *_distances(group.sketches[content], found, at, chosen, layout))
        else:
            same = np.equal.outer(found.tensor[at[chosen]], found.tensor[at])
            share = np.where(same, 0.0, np.nan)
            yield Place(at, chosen, share, share)


def _distances(
    sketches: NDArray[np.int16],
    found: Occurrences,
    at: NDArray[np.int64],
    chosen: NDArray[np.int64],
    layout: SketchLayout,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Shares of all bits and of the leading ones, in a block of targets after the other."""
    share, leading = (np.empty((chosen.size, at.size)) for _ in range(2))
    weights = np.array(_LEADING[layout.element_nbytes])
    rows, nbytes = found.rows[at], found.nbytes[at]
    for first in range(0, chosen.size, TARGETS):
        some = chosen[first : first + TARGETS]
        apart = group_distances(sketches[some], sketches, layout, nbytes[some])
        apart *= np.minimum(1.0, np.divide.outer(nbytes[some], nbytes))  # of the larger one
        part = slice(first, first + TARGETS)
        share[part] = distance(apart, layout)
        leading[part] = np.tensordot(weights, apart, axes=1)
        more, fewer = (f.outer(rows[some], rows) for f in (np.maximum, np.minimum))
        share[part][more > MAX_GROWTH * fewer] = np.nan
    return share, leading
