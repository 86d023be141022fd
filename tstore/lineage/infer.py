"""From distances between models to who was made from whom: pure functions of matrices.

Distances have no direction, so it comes from their pattern. A family is what is near; its root is
the model that is nearest to all others; a parent lies closer to the root than its child. Of
several such models the nearest is the parent, unless the root is about as near: then what looks
like a step on the way only drifted the same way.

Shares of *leading* bits serve here (`tstore.lineage.places`): low mantissa bits soon differ like
coin flips, whatever the way, while leading bits differ in proportion to how far weights moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MARGIN = 0.03
"""A model must be nearer than the root by this part to be a step between the root and a child."""
DRIFTED = 0.3
"""A parent of a merge is at least this part of the merge's distance away from the root."""
MIN_GAIN = 0.25
"""Steps of training point in unrelated directions, so squared distances add up along a line of
descent: the child of a model gains by it, beside the root, what the model is away from the root.
Siblings that drifted the same way gain less of it than this part."""


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


@dataclass
class Tree:
    """What was inferred.

    Attributes
    ----------
    parents : list of list of int
        Of each model, the most likely one first; more than one of a merge. Empty for a root.
    root : list of int or None
        Root of each model's family; None for a family of two of which either may be the parent.
    merges : set of int
        Models whose parents are all of those listed.
    """

    parents: list[list[int]]
    root: list[int | None]
    merges: set[int] = field(default_factory=set)


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
        for model in family:
            if merged := _merged(known, family, root, model, tree):
                tree.merges.add(model)
                tree.parents[model] = merged
                for parent in merged:
                    barred[parent].add(model)
        for model in family:
            if barred[model] & set(tree.parents[model]) and model not in tree.merges:
                tree.parents[model] = _parent(known, family, root, model, barred[model])
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


def _merged(known: Evidence, family: Sequence[int], root: int, model: int, tree: Tree) -> list[int]:
    """Both parents of a model that only looks like the parent of one of them, else nothing.

    The average of two fine-tunes lies closer to the root than either, and on the way to both. But
    a true step on the way to one would be as far from the other as the root and more.
    """
    d = known.distance
    if model == root or known.earlier[family, model].any():
        return []
    children = [m for m in family if tree.parents[m] == [model] and not known.earlier[model, m]]
    for child in children:
        others = [
            m
            for m in family
            if m not in (model, child, root)
            and tree.parents[m] != [model]
            and d[m, root] >= DRIFTED * d[model, root]
            and d[m, model] <= d[root, model]
            and d[m, child] >= (1 - MARGIN) * d[root, child]
            and not known.earlier[m, child]
        ]
        if others:
            other = min(others, key=lambda m: d[m, model])
            return sorted([child, other], key=lambda m: d[m, model])
    return []
