"""Who is whose parent in a store: the evidence of the catalog put together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tstore.lineage.copies import Copy
from tstore.lineage.infer import Evidence, Tree, infer
from tstore.lineage.models import Model
from tstore.lineage.relations import Relations, near_limit, weighted_mean

MIN_COMPARED = 0.25
"""Part of the smaller of two models that must be comparable before its distance says anything."""
NEARER = 0.9
"""Part of the distance of an f32 model to its parent below which its bf16 copy is nearer to its own."""
MAX_LISTED = 4
"""Parents that are listed, the likely ones first."""


@dataclass(frozen=True)
class Lineage:
    """What the content says of n models.

    Attributes
    ----------
    same : tuple of tuple of int
        Bit-identical models of each, without itself.
    parents : tuple of tuple of int
        Ranked candidates of each; `n_parents` of them are inferred, the others are merely near.
    n_parents : tuple of int
        0 of a root, 2 of a merge.
    copy : tuple of int or None
        The same model in another dtype.
    undirected : tuple of bool
        Whether a model has one relative, of which it may be the parent as well.
    """

    same: tuple[tuple[int, ...], ...]
    parents: tuple[tuple[int, ...], ...]
    n_parents: tuple[int, ...]
    copy: tuple[int | None, ...]
    undirected: tuple[bool, ...]

    def ancestors(self, model: int) -> set[int]:
        """Inferred parents, their parents and so on, with all that is the same as they are."""
        seen: set[int] = set()
        waiting = [model]
        while waiting:
            one = waiting.pop()
            for parent in self.parents[one][: self.n_parents[one]]:
                copy = self.copy[parent]
                for kin in (parent, *self.same[parent], *([] if copy is None else [copy])):
                    if kin not in seen and kin != model:
                        seen.add(kin)
                        waiting.append(kin)
        return seen


def infer_lineage(models: tuple[Model, ...], sums: Relations, copies: list[Copy]) -> Lineage:
    """Parents of all models, from what their tensors have in common.

    Parameters
    ----------
    models : tuple of Model
    sums : Relations
        Of all pairs.
    copies : list of Copy
        The same models in other dtypes.
    """
    nbytes = np.array([model.nbytes for model in models], dtype=np.float64)
    twins = _twins(sums, nbytes)
    first = np.array([min(group) for group in twins], dtype=np.int64)
    kept = np.unique(first)
    place = {int(model): i for i, model in enumerate(kept)}
    pairs = [
        Copy(place[int(first[c.wide])], place[int(first[c.narrow])], c.widened) for c in copies
    ]
    known = _evidence([models[i] for i in kept], nbytes[kept], sums, kept, pairs)
    tree = infer(known)
    _join_copies(tree, pairs, known.distance)
    copy_of: dict[int, int] = {}
    for pair in pairs:
        copy_of |= {pair.wide: pair.narrow, pair.narrow: pair.wide}
    ranked = [_ranked(known, tree, copy_of.get(i), i) for i in range(kept.size)]
    rows = [place[int(one)] for one in first]
    return Lineage(
        same=tuple(tuple(sorted(group - {i})) for i, group in enumerate(twins)),
        parents=tuple(tuple(int(kept[p]) for p in ranked[row]) for row in rows),
        n_parents=tuple(len(tree.parents[row]) for row in rows),
        copy=tuple(int(kept[copy_of[row]]) if row in copy_of else None for row in rows),
        undirected=tuple(tree.root[row] is None for row in rows),
    )


def _twins(sums: Relations, nbytes: NDArray[np.float64]) -> list[set[int]]:
    """For each model, those whose every tensor is in it and that have all of its tensors."""
    whole = sums.identical >= nbytes[:, None]
    mutual = whole & whole.T
    return [{i, *np.flatnonzero(mutual[i]).tolist()} for i in range(nbytes.size)]


def _evidence(
    models: list[Model],
    nbytes: NDArray[np.float64],
    sums: Relations,
    kept: NDArray[np.int64],
    copies: list[Copy],
) -> Evidence:
    at = np.ix_(kept, kept)
    weight = sums.compared[at] + sums.compared[at].T

    def mean(total: NDArray[np.float64]) -> NDArray[np.float64]:
        return weighted_mean(total[at] + total[at].T, weight)

    compared = np.maximum(sums.compared[at], sums.compared[at].T)
    enough = compared >= MIN_COMPARED * np.minimum.outer(nbytes, nbytes)
    limits = np.array([near_limit(model.dtype) for model in models])

    def each_pair(holds: Callable[[Model, Model], bool]) -> NDArray[np.bool_]:
        pairs = [holds(a, b) for a in models for b in models]
        return np.array(pairs, dtype=np.bool_).reshape(enough.shape)

    run = each_pair(lambda a, b: (a.repo, a.revision) == (b.repo, b.revision))
    related = enough & (run | (mean(sums.differing) <= np.maximum.outer(limits, limits)))
    earlier = each_pair(lambda a, b: a.order < b.order)
    anchored = np.zeros(len(models), dtype=np.bool_)
    anchored[[end for pair in copies for end in (pair.wide, pair.narrow)]] = True
    return Evidence(
        distance=np.where(enough, mean(sums.leading), np.inf),
        related=related & ~np.eye(len(models), dtype=np.bool_),
        earlier=run & related & earlier,
        anchored=anchored,
    )


def _join_copies(tree: Tree, copies: list[Copy], distance: NDArray[np.float64]) -> None:
    """One of a model and its copy in another dtype is the child of the other.

    Without a parent of its own dtype, it is; of two without, the bf16 one, unless the f32 one was
    widened. Of two with parents, the f32 one if the other is clearly nearer to its parent: an
    export to bf16 is not, but the f32 master of a fine-tune of a bf16 model also differs from the
    f32 base by what the base lost.
    """
    for pair in copies:
        wide, narrow = tree.parents[pair.wide], tree.parents[pair.narrow]
        if wide and narrow:
            apart = distance[pair.wide, wide[0]], distance[pair.narrow, narrow[0]]
            to_narrow = apart[1] < NEARER * apart[0]
        else:
            to_narrow = bool(narrow) or (not wide and pair.widened)
        if to_narrow:
            tree.parents[pair.wide] = [pair.narrow]
        else:
            tree.parents[pair.narrow] = [pair.wide]


def _ranked(known: Evidence, tree: Tree, copy: int | None, model: int) -> list[int]:
    """Inferred parents, then the copy, then others that are near."""
    near = np.argsort(known.distance[model], kind="stable")
    others = [int(m) for m in near if known.related[model, m]]
    listed = [*tree.parents[model], *([] if copy is None else [copy]), *others]
    return list(dict.fromkeys(listed))[:MAX_LISTED]
