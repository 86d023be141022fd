"""From distances between models to who was made from whom: pure functions of matrices.

Distances have no direction, so it comes from their pattern. A family is what is near; its root is
the model that is nearest to all others; a parent lies closer to the root than its child. Of
several such models the nearest is the parent, unless the root is about as near: then what looks
like a step on the way only drifted the same way.

Shares of *leading* bits serve here (`tstore.lineage.places`): low mantissa bits soon differ like
coin flips, whatever the way, while leading bits differ in proportion to how far weights moved.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MARGIN = 0.03
"""A model must be nearer than the root by this part to be a step between the root and a child."""
MIN_GAIN = 0.28
"""Steps of training point in unrelated directions, so squared distances add up along a line of
descent: the child of a model gains by it, beside the root, what the model is away from the root.
Siblings that drifted the same way gain less of it than this part."""
OBTUSE = 1.1
"""So lines of descent meet at right angles at most, while a merge lies between its parents: the
square of their distance exceeds the sum of those from the merge to them by this factor. Only a
run of checkpoints may go straight on."""


@dataclass(frozen=True)
class Evidence:
    """What is known of n models, none of them bit-identical to another.

    Attributes
    ----------
    distance : float64 (n, n)
        Symmetric; infinite where nothing is comparable.
    related : bool (n, n)
        Symmetric: near enough to have a common history.
    earlier : bool (n, n)
        Whether the row is an earlier checkpoint of the same run as the column.
    anchored : bool (n,)
        Whether a model has a copy in another dtype: of two alone, it is the elder.
    """

    distance: Floats
    related: NDArray[np.bool_]
    earlier: NDArray[np.bool_]
    anchored: NDArray[np.bool_]


@dataclass(frozen=True)
class Tree:
    """What was inferred.

    Attributes
    ----------
    parents : list of list of int
        Of each model, the most likely one first; more than one of a merge. Empty for a root.
    root : list of int or None
        Root of each model's family; None for a family of two of which either may be the parent.
    """

    parents: list[list[int]]
    root: list[int | None]


def infer(known: Evidence) -> Tree:
    """Parents of each model."""
    n = len(known.distance)
    tree = Tree([[] for _ in range(n)], [None] * n)
    for family in _families(known):
        root = _root(known, family)
        for model in family:
            tree.root[model] = root
        if root is None:
            continue
        barred = {model: {model} for model in family}
        for model in family:
            tree.parents[model] = _parent(known, family, root, model, barred[model])
        for _, merge, pair in sorted(_between(known, family, root, tree), reverse=True):
            if any(tree.parents[model] == [merge] for model in pair):
                tree.parents[merge] = list(pair)
                for parent in pair:
                    barred[parent].add(merge)
                    if tree.parents[parent] == [merge]:
                        tree.parents[parent] = _parent(known, family, root, parent, barred[parent])
    return tree


def _families(known: Evidence) -> list[list[int]]:
    """Connected components of what is related, each sorted; also those of one."""
    label = np.arange(len(known.distance))
    while True:
        reach = np.where(known.related, label[None, :], len(label)).min(axis=1, initial=len(label))
        lower = np.minimum(label, reach)
        if (lower == label).all():
            return [np.flatnonzero(label == one).tolist() for one in np.unique(label)]
        label = lower


def _root(known: Evidence, family: Sequence[int]) -> int | None:
    """The most central of those that follow no other checkpoint."""
    firsts = [m for m in family if not known.earlier[family, m].any()]
    if len(family) == 2 and len(firsts) == 2:
        elder = [m for m in family if known.anchored[m]]
        return elder[0] if len(elder) == 1 else None
    inside = known.distance[np.ix_(family, family)]
    far = inside[np.isfinite(inside)].max(initial=0.0)
    sums = np.where(np.isfinite(inside), inside, far).sum(axis=1)
    return min(firsts, key=lambda model: (sums[family.index(model)], model))


def _parent(
    known: Evidence, family: Sequence[int], root: int, model: int, barred: set[int]
) -> list[int]:
    """The nearest model on the way from the root; the root if that is about as near."""
    if model == root:
        return []
    d = known.distance
    run = [m for m in family if known.earlier[m, model] and m not in barred]
    if run:
        return [min(run, key=lambda m: d[m, model])]
    closer = [
        m
        for m in family
        if m not in barred
        and d[m, root] < d[model, root]
        and known.related[m, model]
        and not known.earlier[model, m]
    ]
    steps = [
        m
        for m in closer
        if d[m, model] < (1 - MARGIN) * d[root, model]
        and d[root, model] ** 2 - d[m, model] ** 2 >= MIN_GAIN * d[m, root] ** 2
    ]
    return [min(steps, key=lambda m: d[m, model], default=root)]


def _between(
    known: Evidence, family: Sequence[int], root: int, tree: Tree
) -> Iterator[tuple[float, int, tuple[int, int]]]:
    """Models that lie between a would-be child and another: how much so, and both, nearest first.

    The average of two fine-tunes is closer to the root than either, and so on the way to both.
    """
    d = known.distance
    for child in family:
        for model in tree.parents[child]:
            if model == root or known.earlier[family, model].any() or known.earlier[model, child]:
                continue
            found = [
                (float(d[m, child] ** 2 / (d[m, model] ** 2 + d[child, model] ** 2)), m)
                for m in family
                if m not in (model, child, root)
                and np.isfinite([d[m, child], d[m, model]]).all()
                and d[m, child] >= (1 - MARGIN) * d[root, child]
                and not known.earlier[[m, child], [child, m]].any()
            ]
            most, other = max(found, default=(0.0, child))
            if most > OBTUSE:
                near, far = sorted([child, other], key=lambda m: d[m, model])
                yield most, model, (near, far)
