"""Bases of another number of rows: an embedding whose vocabulary grew, or was cut.

The delta of such a tensor is taken against the base cut or padded with zeros to its size (see
`tstore.catalog.blobs.resized`). Rows before the end stay where they were, so the sketches tell
the distance as they do within a group.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

import numpy as np

from tstore.plan.costs import SketchCosts
from tstore.plan.problem import Floats, Ints
from tstore.predict.tensorpred import TensorPred
from tstore.settings import PlanSettings, SketchSettings
from tstore.sketch.groups import GroupKey, SketchGroup
from tstore.sketch.layout import SketchLayout

MAX_GROWTH = 1.25
"""Shapes whose row counts differ more are not compared: too little would be shared."""
BLOCK = 1024
"""Tensors priced at a time."""


def kin_shapes(key: GroupKey, others: Iterable[GroupKey]) -> list[GroupKey]:
    """Those of `others` with the same dtype and rows as `key`, but more or fewer of them.

    Parameters
    ----------
    key : (dtype, shape)
    others : iterable of (dtype, shape)
    """
    dtype, shape = key
    if len(shape) < 2:
        return []
    return sorted(
        other
        for other in set(others)
        if other[0] == dtype
        and other[1][1:] == shape[1:]
        and other != key
        and max(other[1][0], shape[0]) <= MAX_GROWTH * min(other[1][0], shape[0])
    )


def resized_bases(
    lone: SketchGroup,
    whole: Sequence[SketchGroup],
    predictor: TensorPred,
    settings: PlanSettings,
    sketch: SketchSettings,
) -> dict[str, tuple[str, float]]:
    """Base and predicted ratio of each lone tensor that is better off as a delta.

    Parameters
    ----------
    lone : SketchGroup
        Tensors that are stored whole and that no delta needs.
    whole : sequence of SketchGroup
        Tensors of kin shapes that are stored whole.
    predictor : TensorPred
    settings : PlanSettings
    sketch : SketchSettings
    """
    names = [name for group in whole for name in group.ids]
    if not names or not lone.ids:
        return {}
    costs = SketchCosts(
        sketches=np.concatenate([lone.sketches, *(group.sketches for group in whole)]),
        layout=SketchLayout.of(lone.dtype, sketch),
        nbytes=lone.nbytes,
        predictor=predictor,
    )
    base, ratio = _cheapest(costs, len(lone.ids), len(names))
    gains = ratio <= lone.standalone - settings.min_gain
    return {lone.ids[row]: (names[base[row]], float(ratio[row])) for row in np.flatnonzero(gains)}


def _cheapest(costs: SketchCosts, n_lone: int, n_whole: int) -> tuple[Ints, Floats]:
    """Cheapest of the ids from `n_lone` on for each of the first ones; the lowest on a tie."""
    base, ratio = np.zeros(n_lone, dtype=np.int64), np.full(n_lone, np.inf)
    for i in range(0, n_lone, BLOCK):
        targets = np.arange(i, min(i + BLOCK, n_lone))
        for j in range(0, n_whole, BLOCK):
            bases = np.arange(j, min(j + BLOCK, n_whole))
            priced = costs.ratios(targets, n_lone + bases)
            best = priced.argmin(axis=1)
            lowest = priced[np.arange(targets.size), best]
            better = lowest < ratio[targets]
            base[targets[better]], ratio[targets[better]] = bases[best[better]], lowest[better]
    return base, ratio


def without(group: SketchGroup, names: AbstractSet[str]) -> SketchGroup:
    """Leave out the tensors called `names`."""
    return group.take(np.flatnonzero([name not in names for name in group.ids]))
