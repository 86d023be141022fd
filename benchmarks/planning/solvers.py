"""Planners to compare FlexSplit with: the optimum, a classical approximation, no planning at all."""

from __future__ import annotations

import heapq

import numpy as np
from numba import njit
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from tstore.plan.flexsplit.edges import Edges, all_edges
from tstore.plan.flexsplit.phases import assignment_of
from tstore.plan.flexsplit.search import Bools, state_of
from tstore.plan.pricing import limits, new_ids, price, stored_only
from tstore.plan.problem import STANDALONE, Assignment, Ints, Problem


def first_base(problem: Problem) -> Assignment:
    """The first tensor of the group is the base of all others; no choice is made.

    Parameters
    ----------
    problem : Problem
        Its first tensor is stored or new.
    """
    ids = new_ids(problem)
    base = np.where(ids == 0, STANDALONE, 0)
    ratio = price(problem, ids, base[:, None])[:, 0]
    whole = ~(ratio <= limits(problem))
    base[whole], ratio[whole] = STANDALONE, problem.standalone[whole]
    return Assignment(base, ratio)


def ilp(problem: Problem) -> Assignment:
    """The cheapest plan, by an integer program (HiGHS).

    A variable for each base and for each delta worth having, as large as what it changes in the
    cost of storing each tensor at its offer (see `Edges`). A tensor is a base or a delta of at most
    one, and only of a base.

    Parameters
    ----------
    problem : Problem

    Raises
    ------
    RuntimeError
        The solver gave up.
    """
    offers = stored_only(problem)
    edges = all_edges(problem, offers)
    n, n_edges = edges.whole.size, edges.options.size
    if n == 0:
        return offers
    targets, bases, costs = _by_target(edges)
    each, delta = np.arange(n), n + np.arange(n_edges)
    once = coo_array(
        (np.ones(n + n_edges), (np.append(each, targets), np.append(each, delta))),
    ).tocsr()
    of_bases = coo_array(
        (
            np.repeat([1.0, -1.0], n_edges),
            (np.tile(np.arange(n_edges), 2), np.append(delta, bases)),
        ),
        shape=(n_edges, n + n_edges),
    ).tocsr()
    solution = milp(
        np.append(edges.whole - edges.offer, costs - edges.offer[targets]) / edges.whole.max(),
        integrality=np.repeat([1, 0], [n, n_edges]),  # then the cheapest deltas are whole numbers
        bounds=Bounds(0, 1),
        constraints=[LinearConstraint(once, ub=1), LinearConstraint(of_bases, ub=0)],
        options={"mip_rel_gap": 0},
    )
    if solution.status != 0:
        raise RuntimeError(f"expected an optimal solution, found: {solution.message}")
    return assignment_of(problem, offers, state_of(edges, solution.x[:n] > 0.5))


def primal_dual(problem: Problem) -> Assignment:
    """The primal-dual schema of Jain and Vazirani (2001): at most 3 times the optimum.

    The factor holds for metric costs. Deltas that are not allowed make them less than metric, but
    no plan is costlier than storing every tensor at its offer.

    Parameters
    ----------
    problem : Problem
    """
    offers = stored_only(problem)
    edges = all_edges(problem, offers)
    latest = int(edges.whole.max(initial=0))
    budget = np.where(offers.base == STANDALONE, latest, edges.offer)
    opened = np.full(budget.size, latest + 1)
    _raise_budgets(edges, latest, budget, opened)
    kept = np.zeros(budget.size, dtype=np.bool_)
    _keep_apart(edges, np.argsort(opened, kind="stable"), budget, kept)
    kept &= opened <= latest
    return assignment_of(problem, offers, state_of(edges, kept))


@njit(cache=True)
def _raise_budgets(edges: Edges, latest: int, budget: Ints, opened: Ints) -> None:
    """First phase: all tensors raise their budgets at the same pace, and bases open.

    What a budget exceeds the cost of a delta by is paid to its base. A base that is paid in full
    opens; a tensor that can afford an open base stops.

    Parameters
    ----------
    latest : int
        By then each tensor could pay for itself.
    budget : int64 (n,)
        Where each tensor would stop if no base opened: at its stored base, or `latest`. Changed to
        where it stops.
    opened : int64 (n,)
        Beyond `latest`. Changed to when each base opens, if it does.
    """
    heap = [(_opens(edges, latest, budget, base), base) for base in range(budget.size)]
    heapq.heapify(heap)
    while len(heap) > 0 and heap[0][0] <= latest:
        now, base = heapq.heappop(heap)
        again = _opens(edges, latest, budget, base)
        if again > now:  # tensors have stopped meanwhile
            heapq.heappush(heap, (again, base))
            continue
        opened[base] = now
        budget[base] = min(budget[base], now)
        for e in range(edges.first_client[base], edges.first_client[base + 1]):
            client = edges.clients[e]
            budget[client] = min(budget[client], max(now, edges.costs[e]))


@njit(cache=True)
def _opens(edges: Edges, latest: int, budget: Ints, base: int) -> int:
    """When `base` is paid in full if no other opens; ``latest + 1`` if never."""
    low, high = 0, latest + 1
    while low < high:
        now = (low + high) // 2
        paid = min(budget[base], now)
        for e in range(edges.first_client[base], edges.first_client[base + 1]):
            paid += max(min(budget[edges.clients[e]], now) - edges.costs[e], 0)
        if paid >= edges.whole[base]:
            high = now
        else:
            low = now + 1
    return low


@njit(cache=True)
def _keep_apart(edges: Edges, bases: Ints, budget: Ints, kept: Bools) -> None:
    """Second phase: of bases that the same tensor pays for, only the first of `bases` is kept.

    `kept` starts as False.
    """
    taken = np.zeros(budget.size, np.bool_)
    for base in bases:
        first, last = edges.first_client[base], edges.first_client[base + 1]
        free = not taken[base]
        for e in range(first, last):
            client = edges.clients[e]
            free &= not (taken[client] and budget[client] > edges.costs[e])
        if free:
            kept[base] = taken[base] = True
            for e in range(first, last):
                if budget[edges.clients[e]] > edges.costs[e]:
                    taken[edges.clients[e]] = True


def _by_target(edges: Edges) -> tuple[Ints, Ints, Ints]:
    """Target, base and cost of each edge."""
    targets = np.repeat(np.arange(edges.whole.size), np.diff(edges.first))
    return targets, edges.options & 0xFFFFFFFF, edges.options >> 32
