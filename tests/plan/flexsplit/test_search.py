"""The local search: bookkeeping equals a fresh look, gains are true, nothing is left to gain."""

from itertools import chain

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from support.problems import KINDS, random_problem, structured_problem
from tstore.plan.flexsplit.edges import Edges, all_edges
from tstore.plan.flexsplit.search import (
    NONE,
    Bools,
    State,
    _add,
    _demotion,
    _promotion,
    _remove,
    _swap,
    cost_of,
    improve,
    promote,
    state_of,
    total,
)
from tstore.plan.pricing import stored_only

SEEDS = st.integers(0, 10**6)
PROBLEMS = st.builds(
    random_problem, SEEDS, st.integers(1, 15), st.integers(0, 2), levels=st.sampled_from([0, 4])
) | st.builds(structured_problem, st.sampled_from(KINDS), SEEDS, st.integers(1, 30))
EDGES = st.builds(lambda problem: all_edges(problem, stored_only(problem)), PROBLEMS)


def plain_costs(edges: Edges, is_base: Bools) -> list[list[tuple[int, int]]]:
    """What each tensor may cost as a delta, (cost, base), cheapest first; the offer is base -1."""
    costs = []
    for row in range(is_base.size):
        keys = edges.options[edges.first[row] : edges.first[row + 1]].tolist()
        pairs = [(key >> 32, key & 0xFFFFFFFF) for key in keys]
        costs.append([pair for pair in pairs if is_base[pair[1]]])
        costs[-1].append((int(edges.offer[row]), NONE))
    return costs


def plain_total(edges: Edges, is_base: Bools) -> int:
    costs = plain_costs(edges, is_base)
    return sum(
        int(edges.whole[row]) if is_base[row] else costs[row][0][0] for row in range(is_base.size)
    )


def random_bases(edges: Edges, seed: int) -> Bools:
    return np.random.default_rng(seed).random(edges.whole.size) < 0.3


def changed(is_base: Bools, *rows: int) -> Bools:
    """The bases with some the other way round."""
    other = is_base.copy()
    other[list(rows)] ^= True
    return other


@given(edges=EDGES, seed=SEEDS)
def test_a_state_knows_the_two_cheapest_options(edges: Edges, seed: int) -> None:
    is_base = random_bases(edges, seed)
    state = state_of(edges, is_base)
    loss = np.zeros(is_base.size, dtype=np.int64)
    for row, options in enumerate(plain_costs(edges, is_base)):
        first, second = options[0], options[min(1, len(options) - 1)]
        assert (state.cheapest[row], state.base[row]) == first
        assert (state.second[row], state.second_base[row]) == second
        assert cost_of(edges, state, row) == (edges.whole[row] if is_base[row] else first[0])
        if not is_base[row] and first[1] != NONE:
            loss[first[1]] += second[0] - first[0]
    assert state.loss[is_base].tolist() == loss[is_base].tolist()
    assert total(edges, state) == plain_total(edges, is_base)


@given(edges=EDGES, seed=SEEDS, steps=st.lists(st.integers(0, 99), max_size=30))
def test_steps_leave_the_state_of_a_fresh_look(edges: Edges, seed: int, steps: list[int]) -> None:
    state = state_of(edges, random_bases(edges, seed))
    for row in (step % edges.whole.size for step in steps):
        (_remove if state.is_base[row] else _add)(edges, state, row)
    assert_current(edges, state)


def assert_current(edges: Edges, state: State) -> None:
    """Everything follows from the bases; on a tie, either base may be the cheapest."""
    fresh = state_of(edges, state.is_base)
    assert state.cheapest.tolist() == fresh.cheapest.tolist()
    assert state.second.tolist() == fresh.second.tolist()
    loss = np.zeros_like(state.loss)
    for row, options in enumerate(plain_costs(edges, state.is_base)):
        assert (state.cheapest[row], state.base[row]) in options
        assert (state.second[row], state.second_base[row]) in options
        if not state.is_base[row] and state.base[row] != NONE:
            loss[state.base[row]] += state.second[row] - state.cheapest[row]
    assert state.loss[state.is_base].tolist() == loss[state.is_base].tolist()


@given(edges=EDGES, seed=SEEDS)
def test_gains_are_what_the_total_falls_by(edges: Edges, seed: int) -> None:
    is_base = random_bases(edges, seed)
    state, before = state_of(edges, is_base), plain_total(edges, is_base)
    bonus, touched = np.zeros(is_base.size, np.int64), np.zeros(is_base.size, np.int64)
    for row in range(is_base.size):
        gain = before - plain_total(edges, changed(is_base, row))
        if is_base[row]:
            assert _demotion(edges, state, row) == gain
            assert _promotion(edges, state, row) == 0
            continue
        assert _promotion(edges, state, row) == gain
        alone, both = {NONE: gain}, {NONE: gain}
        for other in np.flatnonzero(is_base).tolist():
            alone[other] = gain + before - plain_total(edges, changed(is_base, other))
            both[other] = before - plain_total(edges, changed(is_base, row, other))
        # Steps that gain no more together than one by one are left to be found one by one.
        offered = {b: g for b, g in both.items() if g > alone[b] or b == NONE}
        best, replaced = _swap(edges, state, row, bonus, touched)
        assert best == max(offered.values())
        assert offered[replaced] == best
        assert not bonus.any()


def plain_promote(edges: Edges, is_base: Bools) -> Bools:
    """Greedy: the tensor that gains the most, the lowest of equals, until none does."""
    while True:
        before = plain_total(edges, is_base)
        gains = [
            (before - plain_total(edges, changed(is_base, row)), -row)
            for row in np.flatnonzero(~is_base).tolist()
        ]
        if not gains or max(gains)[0] <= 0:
            return is_base
        is_base = changed(is_base, -max(gains)[1])


@given(edges=EDGES, seed=st.none() | SEEDS)
def test_promotion_is_greedy(edges: Edges, seed: int | None) -> None:
    bases = np.zeros(edges.whole.size, np.bool_) if seed is None else random_bases(edges, seed)
    state = state_of(edges, bases)
    promote(edges, state)
    assert state.is_base.tolist() == plain_promote(edges, bases).tolist()
    assert_current(edges, state)


@given(edges=EDGES, seed=SEEDS)
def test_after_the_search_no_single_step_gains(edges: Edges, seed: int) -> None:
    is_base = random_bases(edges, seed)
    state = state_of(edges, is_base)
    improve(edges, state, 1000)
    assert_current(edges, state)
    found = plain_total(edges, state.is_base)
    assert found <= plain_total(edges, is_base)
    bases, others = np.flatnonzero(state.is_base).tolist(), np.flatnonzero(~state.is_base).tolist()
    steps = chain(
        ((row,) for row in bases + others), ((row, base) for row in others for base in bases)
    )
    assert all(plain_total(edges, changed(state.is_base, *rows)) >= found for rows in steps)


def test_a_base_that_serves_nobody_is_none() -> None:
    """Left as a base, it would not be asked which new base it would rather be a delta of."""
    problem = structured_problem("unrelated", 0, 5)
    edges = all_edges(problem, stored_only(problem))
    state = state_of(edges, np.ones(5, np.bool_))
    improve(edges, state, 1)
    assert not state.is_base.any()
    assert total(edges, state) == edges.whole.sum()


@given(edges=EDGES, seed=SEEDS, passes=st.integers(0, 2))
def test_a_search_that_is_cut_short_does_no_harm(edges: Edges, seed: int, passes: int) -> None:
    is_base = random_bases(edges, seed)
    state = state_of(edges, is_base)
    improve(edges, state, passes)
    assert_current(edges, state)
    assert total(edges, state) <= plain_total(edges, is_base)
