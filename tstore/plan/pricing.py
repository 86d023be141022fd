"""What deltas would cost, asked for in blocks that stay small."""

from __future__ import annotations

import numpy as np

from tstore.plan.problem import STANDALONE, Assignment, Floats, Ints, Problem

MAX_EXACT_BASES = 4096
"""With more bases than this, only the likely ones are priced."""
N_LIKELY = 8
"""Bases priced for each tensor where there are too many to price all."""
ROWS = 512
"""Tensors priced at a time against the same bases."""
BASES = 2048
"""Bases priced at a time."""
PAIRS = 1 << 18
"""Pairs priced at a time when each tensor has its own few bases."""


def new_ids(problem: Problem) -> Ints:
    """Ids of the new tensors, in order of arrival."""
    return np.arange(problem.n_stored, len(problem.names), dtype=np.int64)


def limits(problem: Problem) -> Floats:
    """What a delta of each new tensor may cost at most, float64 (n,)."""
    return problem.standalone - problem.min_gain


def price(problem: Problem, targets: Ints, bases: Ints) -> Floats:
    """Predicted stored/raw of each target as a delta of its own bases.

    Parameters
    ----------
    problem : Problem
    targets : int64 (m,)
        Ids.
    bases : int64 (m, c)
        Ids; -1 for none.

    Returns
    -------
    float64 (m, c)
        Infinite where there is no base.
    """
    ratio = np.full(bases.shape, np.inf)
    rows, columns = np.nonzero(bases >= 0)
    for start in range(0, rows.size, PAIRS):
        part = rows[start : start + PAIRS], columns[start : start + PAIRS]
        ratio[part] = problem.costs.pairs(targets[part[0]], bases[part])
    return ratio


def cheapest(problem: Problem, targets: Ints, bases: Ints) -> tuple[Ints, Floats]:
    """Cheapest base of each target, other than itself.

    Parameters
    ----------
    problem : Problem
    targets : int64 (m,)
        Ids.
    bases : int64 (b,)
        Ids, ascending. Beyond `MAX_EXACT_BASES` only the likely ones are priced.

    Returns
    -------
    base : int64 (m,)
        The lowest id of those that cost the least; -1 if there is none.
    ratio : float64 (m,)
        Its predicted stored/raw; infinite if there is none.
    """
    base = np.full(targets.size, STANDALONE, dtype=np.int64)
    ratio = np.full(targets.size, np.inf)
    if bases.size > MAX_EXACT_BASES:
        likely = np.sort(problem.costs.near(targets, bases, N_LIKELY), axis=1)
        _keep_cheaper(base, ratio, targets, likely, price(problem, targets, likely))
        return base, ratio
    for i in range(0, targets.size, ROWS):
        part = slice(i, i + ROWS)
        for j in range(0, bases.size, BASES):
            ids = bases[j : j + BASES]
            priced = problem.costs.ratios(targets[part], ids)
            _keep_cheaper(base[part], ratio[part], targets[part], ids[None, :], priced)
    return base, ratio


def _keep_cheaper(base: Ints, ratio: Floats, targets: Ints, bases: Ints, priced: Floats) -> None:
    """Put the cheapest of `bases`, ascending in each row, where it is cheaper than `ratio`."""
    priced = np.where(targets[:, None] == bases, np.inf, priced)
    best = priced.argmin(axis=1)
    rows = np.arange(targets.size)
    lowest = priced[rows, best]
    better = lowest < ratio
    base[better] = np.broadcast_to(bases, priced.shape)[rows, best][better]
    ratio[better] = lowest[better]


def stored_only(problem: Problem) -> Assignment:
    """The plan without new bases: every tensor takes its cheapest stored base, or none."""
    targets, stored = new_ids(problem), np.arange(problem.n_stored, dtype=np.int64)
    base, ratio = cheapest(problem, targets, stored)
    refused = ~(ratio <= limits(problem))
    base[refused] = STANDALONE
    ratio[refused] = problem.standalone[refused]
    return Assignment(base, ratio)
