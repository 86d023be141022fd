"""The two phases of FlexSplit (TStore, §4.4)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tstore.plan.flexsplit.edges import Edges, all_edges, likely, likely_edges
from tstore.plan.flexsplit.refine import refine
from tstore.plan.flexsplit.search import State, improve, promote, state_of
from tstore.plan.pricing import N_LIKELY, cheapest, limits, new_ids, price, stored_only
from tstore.plan.problem import STANDALONE, Assignment, Costs, Floats, Ints, Problem

BLOCK = 256
"""Tensors that arrive at a time."""
MAX_EXACT = 4096
"""All pairs of a group of up to this many new tensors are priced: 16 bytes and a microsecond each.
Of larger groups only the likely ones."""
N_NEAR = 32
"""Nearest tensors that are likely bases of each tensor of a larger group."""
ROUNDS = 2
"""Searches of a larger group. The first finds good bases, the second may join clusters around
them that are larger than `N_NEAR`."""
MAX_PASSES = 50
"""Passes of local search; a handful is usual."""


def assign(problem: Problem) -> Assignment:
    """Plan a group: phase I, then phase II.

    Parameters
    ----------
    problem : Problem

    Returns
    -------
    Assignment
        Deterministic, and never costlier than storing every tensor standalone.
    """
    offers = stored_only(problem)
    return _split(problem, offers, _arrive(problem, offers, BLOCK))


def replan(problem: Problem) -> Assignment:
    """Plan a group as if its tensors had arrived in the order of their names.

    Parameters
    ----------
    problem : Problem
        Names are unique.

    Returns
    -------
    Assignment
        The same base, by name, for every order of `problem.names`, as long as the costs do not
        depend on it (an approximate `Costs.near` may).
    """
    k, names = problem.n_stored, np.array(problem.names, dtype=np.object_)
    order = np.concatenate([np.argsort(names[:k]), k + np.argsort(names[k:])]).astype(np.int64)
    plan = assign(
        replace(
            problem,
            names=tuple(names[order]),
            standalone=problem.standalone[order[k:] - k],
            costs=_Renamed(problem.costs, order),
        )
    )
    base, ratio = np.empty_like(plan.base), np.empty_like(plan.ratio)
    base[order[k:] - k] = _where(plan.base, order)
    ratio[order[k:] - k] = plan.ratio
    return Assignment(base, ratio)


def arrive(problem: Problem, block: int = BLOCK) -> Assignment:
    """Phase I: each tensor, as it arrives, joins the cheapest base or becomes one.

    Parameters
    ----------
    problem : Problem
    block : int
        Tensors priced at a time, which does not change the result.
    """
    return _arrive(problem, stored_only(problem), block)


def split(problem: Problem, assignment: Assignment) -> Assignment:
    """Phase II: make clusters cheaper by splitting them, moving their bases and merging them.

    As in the paper, members become bases while that gains anything, the one that gains the most
    first. Beyond it, bases that do not pay become deltas, bases move to better centres, and where
    the result may be more than `refine.TOLERANCE` above the best plan, other sets of bases are
    tried. Tensors that are stored already never change.

    Parameters
    ----------
    problem : Problem
    assignment : Assignment
        Any plan that keeps the rules.

    Returns
    -------
    Assignment
        Not costlier than `assignment`. Within a per cent of the best plan, as far as measured, up
        to `MAX_EXACT` new tensors; above, bases are looked for among likely ones only.
    """
    return _split(problem, stored_only(problem), assignment)


def _arrive(problem: Problem, offers: Assignment, block: int) -> Assignment:
    ids, limit = new_ids(problem), limits(problem)
    base = offers.base.copy()
    ratio = np.where(base == STANDALONE, np.inf, offers.ratio)
    bases = list[int]()
    for start in range(0, ids.size, block):
        part = slice(start, start + block)
        _take(base[part], ratio[part], *cheapest(problem, ids[part], np.array(bases, np.int64)))
        refused = start + np.flatnonzero(~(ratio[part] <= limit[part]))
        within = problem.costs.ratios(ids[part], ids[refused])
        for column, row in enumerate(refused):
            if ratio[row] <= limit[row]:
                continue  # a base that came just before it serves it
            base[row], ratio[row] = STANDALONE, problem.standalone[row]
            bases.append(ids[row])
            rest = slice(row + 1, start + block)
            priced = within[row + 1 - start :, column]
            _take(base[rest], ratio[rest], np.broadcast_to(ids[row], priced.shape), priced)
    return Assignment(base, ratio)


def _take(base: Ints, ratio: Floats, new: Ints, priced: Floats) -> None:
    """Change to the bases `new` where they are cheaper."""
    better = priced < ratio
    base[better], ratio[better] = new[better], priced[better]


def _split(problem: Problem, offers: Assignment, assignment: Assignment) -> Assignment:
    ids = new_ids(problem)
    if ids.size <= MAX_EXACT:
        return _search(problem, offers, assignment, all_edges(problem, offers))
    near = problem.costs.near(ids, ids, N_NEAR + 1)  # the tensor itself is one of them
    neighbours = likely(problem, assignment, near)
    for _ in range(ROUNDS):
        near_whole = problem.costs.near(ids, ids[assignment.base == STANDALONE], N_LIKELY)
        bases = np.concatenate([assignment.base[:, None], near_whole], axis=1)
        edges = likely_edges(problem, offers, neighbours, likely(problem, assignment, bases))
        assignment = _search(problem, offers, assignment, edges)
    return assignment


def _search(
    problem: Problem, offers: Assignment, assignment: Assignment, edges: Edges
) -> Assignment:
    """Improve a plan whose deltas are `edges`."""
    in_use = np.zeros(assignment.base.size, dtype=np.bool_)
    in_use[assignment.base[assignment.base >= problem.n_stored] - problem.n_stored] = True
    state = state_of(edges, in_use)
    promote(edges, state)
    improve(edges, state, MAX_PASSES)
    refine(edges, state)
    plan = assignment_of(problem, offers, state)
    # Costs in fixed point are rounded, so that what gains next to nothing may lose.
    return plan if plan.ratio.sum() < assignment.ratio.sum() else assignment


def assignment_of(problem: Problem, offers: Assignment, state: State) -> Assignment:
    """The plan of a state of the local search.

    Parameters
    ----------
    problem : Problem
    offers : Assignment
        The plan without new bases.
    state : State
    """
    base, ratio = offers.base.copy(), offers.ratio.copy()
    base[state.is_base] = STANDALONE
    ratio[state.is_base] = problem.standalone[state.is_base]
    deltas = np.flatnonzero(~state.is_base & (state.base >= 0))
    base[deltas] = problem.n_stored + state.base[deltas]
    ids = new_ids(problem)
    ratio[deltas] = price(problem, ids[deltas], base[deltas, None])[:, 0]
    return Assignment(base, ratio)


class _Renamed:
    """Costs by other ids: i stands for ``ids[i]``."""

    def __init__(self, costs: Costs, ids: Ints) -> None:
        self._costs, self._ids = costs, ids
        self._inverse = np.argsort(ids)

    def ratios(self, targets: Ints, bases: Ints) -> Floats:
        return self._costs.ratios(self._ids[targets], self._ids[bases])

    def pairs(self, targets: Ints, bases: Ints) -> Floats:
        return self._costs.pairs(self._ids[targets], self._ids[bases])

    def near(self, targets: Ints, bases: Ints, count: int) -> Ints:
        found = self._costs.near(self._ids[targets], self._ids[bases], count)
        return _where(found, self._inverse)


def _where(found: Ints, ids: Ints) -> Ints:
    """``ids[found]``, and -1 where `found` is."""
    renamed: Ints = np.where(found < 0, STANDALONE, ids[np.maximum(found, 0)])
    return renamed
