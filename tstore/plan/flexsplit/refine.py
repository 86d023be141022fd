"""From a local optimum to a plan that is provably close to the best."""

from __future__ import annotations

import numpy as np

from tstore.plan.flexsplit.bound import Prices
from tstore.plan.flexsplit.compiled import kernel
from tstore.plan.flexsplit.edges import Edges
from tstore.plan.flexsplit.search import State, improve, reset, state_of, total
from tstore.plan.problem import Ints

TOLERANCE = 0.002
"""A plan this close to the bound is good enough: predictions err by more."""
STEPS = 300
GIVE_UP = 100
"""Steps in a row whose candidates gain nothing, after which more would not either."""
OFTEN, SELDOM = 5, 20
"""Steps from one candidate to the next, in small and in large groups: there they take longer, and
parts of many are taken over."""
PASSES = 2
"""Passes of local search for a candidate; what they leave, later candidates find."""


def refine(edges: Edges, state: State) -> int:
    """Improve the bases until they are provably good or candidates gain nothing more.

    Candidates are the bases that prices pay for (see `Prices`), after local search. A candidate is
    seldom better everywhere, so the two plans are joined part by part.

    Parameters
    ----------
    edges : Edges
    state : State
        Improved in place.

    Returns
    -------
    int
        A bound that no plan of these edges can beat.
    """
    prices = Prices.of(edges, state)
    cost, gained = total(edges, state), 0
    every = min(max(state.base.size // 10, OFTEN), SELDOM)
    for step in range(1, STEPS + 1):
        prices.step(cost)
        if cost - prices.bound <= TOLERANCE * cost or step - gained > GIVE_UP:
            break
        if step % every == 0:
            candidate = state_of(edges, prices.paid)
            improve(edges, candidate, PASSES)
            if join(edges, state, candidate):
                cost, gained = total(edges, state), step
    return prices.bound


def join(edges: Edges, state: State, other: State) -> bool:
    """Take over those parts of another plan that are cheaper; whether there are any.

    A part is a set of tensors whose bases, in both plans, are in the set as well. So each part may
    be stored as in either plan, whatever the others do (the idea of partition crossover, which
    Whitley, Hains and Howe have for tours).
    """
    root, gain = np.arange(state.base.size), np.zeros(state.base.size, dtype=np.int64)
    _parts(state, other, root)
    costs = (np.where(s.is_base, edges.whole, s.cheapest) for s in (state, other))
    np.add.at(gain, root, np.subtract(*costs))
    better = gain[root] > 0
    if better.any():
        state.is_base[better] = other.is_base[better]
        reset(edges, state)
    return bool(better.any())


@kernel
def _parts(state: State, other: State, root: Ints) -> None:
    """Label tensors by one of their part; `root` starts with every tensor alone."""
    for tensor in range(root.size):
        for plan in (state, other):
            if not plan.is_base[tensor] and plan.base[tensor] >= 0:
                root[_root(root, tensor)] = _root(root, plan.base[tensor])
    for tensor in range(root.size):
        root[tensor] = _root(root, tensor)


@kernel
def _root(root: Ints, tensor: int) -> int:
    """The tensor that stands for the part, halving the way there."""
    while root[tensor] != tensor:
        root[tensor] = root[root[tensor]]
        tensor = root[tensor]
    return tensor
