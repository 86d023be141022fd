"""FlexSplit: choose the bases of one group of tensors (TStore, §4.4).

Pure functions of arrays. A group is all tensors of one dtype and shape, so that costs compare as
stored/raw ratios. A tensor is stored whole (and may then be a base at no further cost) or as a
delta of a tensor that is stored whole: chains have depth 1.
"""

from __future__ import annotations

import numpy as np

from tstore.errors import PlanInvariantError
from tstore.plan.draft import BLOCK, STANDALONE, Assignment, Draft, Floats, Group, Ints, Predictor

__all__ = ["Assignment", "Group", "arrive", "assign", "check", "split"]

MAX_PREDICTIONS = 1 << 24
"""Predictions held at a time (128 MiB): all pairs of 4,096 tensors. Above, candidates are
sampled."""
MAX_PASSES = 4
"""Passes of phase II. Each lowers the cost; the second seldom finds anything."""
MIN_SAVING = 1e-9
"""A change must save more than rounding can fake."""


def assign(group: Group, predictor: Predictor, min_gain: float) -> Assignment:
    """Plan a group: phase I, then phase II.

    Parameters
    ----------
    group : Group
        New tensors, and those that earlier runs stored whole.
    predictor : callable
        Distances p, float64 (m,), to predicted stored/raw of a delta; non-decreasing.
    min_gain : float
        A delta must be at least this much below the standalone ratio.

    Returns
    -------
    Assignment
        Deterministic, and never costlier than storing every tensor standalone.
    """
    return split(group, arrive(group, predictor, min_gain), predictor, min_gain)


def arrive(group: Group, predictor: Predictor, min_gain: float, block: int = BLOCK) -> Assignment:
    """Phase I: each tensor, as it arrives, joins the cheapest base or becomes one.

    Distances are computed for `block` tensors at a time, which does not change the result.
    """
    n, k = len(group.sketches), len(group.base_sketches)
    nothing = Assignment(np.full(n, STANDALONE, dtype=np.int64), group.standalone)
    draft = Draft.of(group, nothing, predictor, min_gain)
    bases = list(range(k))
    for start in range(0, n, block):
        rows = np.arange(start, min(start + block, n))
        near, p = draft.nearest(rows, np.array(bases, dtype=np.int64))
        within = draft.distances(k + rows, k + rows)
        for j, row in enumerate(rows):
            ratio, taken = draft.or_standalone(rows[j : j + 1], draft.predict(p[j : j + 1]))
            if taken[0]:
                draft.join(rows[j : j + 1], near[j : j + 1], ratio)
                continue
            bases.append(int(k + row))
            closer = within[j] < p
            closer[: j + 1] = False
            near[closer], p[closer] = k + row, within[j, closer]
    return draft.assignment()


def split(
    group: Group, assignment: Assignment, predictor: Predictor, min_gain: float
) -> Assignment:
    """Phase II: improve an assignment step by step; each step lowers the predicted total.

    Members that serve others better than they are served become bases, as in the paper; beyond
    it, a cluster may move its base to a better centre, and a base may become a delta. Tensors
    stored by earlier runs never change.
    """
    draft = Draft.of(group, assignment, predictor, min_gain)
    for _ in range(MAX_PASSES):
        before = draft.ratio.sum()
        _reassign(draft)
        while _promote(draft):
            pass
        _recentre(draft)
        _demote(draft)
        if draft.ratio.sum() >= before - MIN_SAVING:
            break
    return draft.assignment()


def _reassign(draft: Draft) -> None:
    """Move each delta to its nearest base: later arrivals may have brought a better one."""
    rows = draft.deltas()
    near, p = draft.nearest(rows, draft.bases())
    ratio = draft.predict(p)
    better = ratio < draft.ratio[rows]
    draft.join(rows[better], near[better], ratio[better])


def _promote(draft: Draft) -> bool:
    """Make deltas bases, the most useful first, while that saves anything.

    The gain of a candidate is what all deltas of the group save by moving to it, less what it
    saves itself as a delta. Returns whether another call may find more: candidates were sampled
    and one was promoted.
    """
    rows = draft.deltas()
    candidates = _candidates(draft, rows)
    against = draft.predict_pairs(rows, candidates)
    current = draft.ratio[rows]
    own = np.searchsorted(rows, candidates)
    saved = _savings(current, against)
    promoted = False
    while candidates.size:
        gains = saved - (draft.group.standalone[candidates] - current[own])
        best = int(gains.argmax())
        if gains[best] <= MIN_SAVING:
            break
        promoted = True
        moved = against[:, best] < current
        draft.join(rows[moved], draft.k + candidates[best], against[moved, best])
        draft.store_whole(candidates[best : best + 1])
        moved[own[best]] = True
        saved -= _savings(current[moved], against[moved])
        current[moved] = against[moved, best]
        current[own[best]] = -np.inf  # it neither moves nor stands as a candidate again
        saved += _savings(current[moved], against[moved])
    return promoted and candidates.size < rows.size


def _candidates(draft: Draft, rows: Ints) -> Ints:
    """All rows when their pairs fit in memory, else an even sample of their cost.

    Sorted by base and ratio, one row is taken per equal share of the summed ratios: each cluster
    gives candidates in proportion to what its deltas cost, from well to badly aligned ones.
    """
    count = MAX_PREDICTIONS // max(rows.size, 1)
    if rows.size <= count:
        return rows
    order = rows[np.lexsort((draft.ratio[rows], draft.base[rows]))]
    cost = np.cumsum(draft.ratio[order])
    shares = (np.arange(count) + 0.5) * (cost[-1] / count)
    return np.unique(order[np.searchsorted(cost, shares)])


def _savings(current: Floats, against: Floats) -> Floats:
    """Per column, the sum of what rows save by moving to it; by blocks that stay in cache."""
    total = np.zeros(against.shape[1])
    for i in range(0, len(current), BLOCK):
        part = slice(i, i + BLOCK)
        total += np.maximum(current[part, None] - against[part], 0.0).sum(axis=0)
    return total


def _recentre(draft: Draft) -> None:
    """Give each cluster with a new base the base that makes the whole cluster cheapest."""
    for base in draft.new_bases():
        members = draft.members(base)
        if not members.size:
            continue
        rows = np.sort(np.append(members, base))
        candidates = _candidates(draft, rows)
        ratio, allowed = draft.or_standalone(rows, draft.predict_pairs(rows, candidates))
        cost = ratio.sum(axis=0)  # the centre's own entry is its standalone ratio
        best = int(cost.argmin())
        if cost[best] < draft.ratio[rows].sum() - MIN_SAVING:
            joined = allowed[:, best]
            draft.store_whole(rows[~joined])
            draft.join(rows[joined], draft.k + candidates[best], ratio[joined, best])


def _demote(draft: Draft) -> None:
    """Make a base a delta where that saves more than its members lose by moving elsewhere."""
    bases = draft.new_bases()
    _, p = draft.nearest(bases, draft.bases())
    _, allowed = draft.or_standalone(bases, draft.predict(p))
    for base in bases[allowed]:
        rows = np.sort(np.append(draft.members(base), base))
        others = draft.bases()
        near, p = draft.nearest(rows, others[others != draft.k + base])
        ratio, joined = draft.or_standalone(rows, draft.predict(p))
        saved = draft.ratio[rows].sum() - ratio.sum()
        if joined[rows == base].all() and saved > MIN_SAVING:
            draft.store_whole(rows[~joined])
            draft.join(rows[joined], near[joined], ratio[joined])


def check(group: Group, assignment: Assignment, predictor: Predictor, min_gain: float) -> None:
    """Check an assignment from the sketches, independently of how it was found.

    Raises
    ------
    PlanInvariantError
        A base is out of range, the tensor itself or a delta; a ratio is not the predicted one;
        or a delta is not `min_gain` below the standalone ratio.
    """
    draft = Draft.of(group, assignment, predictor, min_gain)
    n, k, base = len(group.sketches), draft.k, assignment.base
    deltas = draft.deltas()
    _require(base.shape == assignment.ratio.shape == (n,), "one base and ratio per new tensor")
    _require(((base >= STANDALONE) & (base < k + n)).all(), f"bases from -1 to {k + n - 1}")
    _require((base[deltas] != k + deltas).all(), "no tensor to be its own base")
    new = base[base >= k] - k
    _require((base[new] == STANDALONE).all(), "only tensors stored whole as bases")
    expected = group.standalone.copy()
    for one in np.unique(base[deltas]):
        rows = np.flatnonzero(base == one)
        expected[rows] = predictor(draft.distances(k + rows, np.array([one]))[:, 0])
    _require((assignment.ratio == expected).all(), "the predicted ratio of each choice")
    _, taken = draft.or_standalone(deltas, expected[deltas])
    _require(taken.all(), f"deltas at least {min_gain} below their standalone ratio")


def _require(holds: bool | np.bool_, rule: str) -> None:
    if not holds:
        raise PlanInvariantError(
            f"expected {rule}, found a plan that breaks this; discard it and report the defect"
        )
