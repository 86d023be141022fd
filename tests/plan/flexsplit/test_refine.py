"""The bound is one, and refining a plan joins the better parts of two."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.problems import KINDS, optimum, random_problem, structured_problem
from tstore.plan.flexsplit.bound import Prices, _relax
from tstore.plan.flexsplit.edges import Edges, all_edges
from tstore.plan.flexsplit.refine import join, refine
from tstore.plan.flexsplit.search import cost_of, improve, promote, state_of, total
from tstore.plan.pricing import stored_only
from tstore.plan.problem import Ints, Problem

SEEDS = st.integers(0, 10**6)
SMALL = st.builds(
    random_problem, SEEDS, st.integers(1, 8), st.integers(0, 2), levels=st.sampled_from([0, 4])
)
MIDDLE = st.builds(structured_problem, st.sampled_from(KINDS), SEEDS, st.integers(1, 60))
ROUNDING = 1e-7


def edges_of(problem: Problem) -> Edges:
    return all_edges(problem, stored_only(problem))


def plain_relax(edges: Edges, price: Ints) -> tuple[int, list[int], list[int]]:
    """Bound, excess payments and slope, from the definition."""
    n = price.size
    payments = np.zeros((n, n), dtype=np.int64)  # by tensor and base
    reach = np.eye(n, dtype=bool)
    np.fill_diagonal(payments, price)
    for row in range(n):
        for key in edges.options[edges.first[row] : edges.first[row + 1]].tolist():
            cost, base = key >> 32, key & 0xFFFFFFFF
            payments[row, base] = max(price[row] - cost, 0)
            reach[row, base] = price[row] > cost
    excess = payments.sum(axis=0) - edges.whole
    slack = 1 - (reach & (excess > 0)).sum(axis=1)
    slack[(price == edges.offer) & (slack > 0)] = 0
    bound = price.sum() - np.maximum(excess, 0).sum()
    return int(bound), excess.tolist(), slack.tolist()


@given(problem=SMALL | MIDDLE, seed=SEEDS)
def test_the_relaxation_equals_its_definition(problem: Problem, seed: int) -> None:
    edges = edges_of(problem)
    share = np.random.default_rng(seed).choice([0, 0.3, 0.7, 1], edges.whole.size)
    price = np.rint(share * edges.offer).astype(np.int64)
    excess, slack = np.empty_like(price), np.empty_like(price)
    bound = _relax(edges, price, excess, slack)
    assert (bound, excess.tolist(), slack.tolist()) == plain_relax(edges, price)


@given(problem=SMALL, seed=SEEDS)
def test_no_plan_beats_the_bound_of_any_prices(problem: Problem, seed: int) -> None:
    edges = edges_of(problem)
    price = (np.random.default_rng(seed).random(edges.whole.size) * edges.offer).astype(np.int64)
    bound = _relax(edges, price, np.empty_like(price), np.empty_like(price))
    assert bound / (1 << 30) <= optimum(problem) + ROUNDING


@given(problem=SMALL)
def test_refining_ends_between_the_bound_and_where_it_began(problem: Problem) -> None:
    edges = edges_of(problem)
    state = state_of(edges, np.zeros(edges.whole.size, np.bool_))
    before = total(edges, state)
    bound = refine(edges, state)
    assert bound <= optimum(problem) * (1 << 30) + ROUNDING * (1 << 30)
    assert bound <= total(edges, state) <= before


@pytest.mark.parametrize("kind", KINDS)
def test_prices_rise_to_a_tight_bound(kind: str) -> None:
    """What makes the bound worth computing: it is within a per cent of a good plan."""
    edges = edges_of(structured_problem(kind, 3, 200, noise=0.1))
    state = state_of(edges, np.zeros(200, np.bool_))
    promote(edges, state)
    improve(edges, state, 50)
    local = total(edges, state)
    bound = refine(edges, state)
    assert bound <= total(edges, state) <= local
    assert total(edges, state) <= 1.01 * bound


def test_prices_stay_between_nothing_and_the_offer() -> None:
    edges = edges_of(structured_problem("tree", 0, 50))
    prices = Prices.of(edges, state_of(edges, np.zeros(50, np.bool_)))
    bounds = []
    for _ in range(100):
        prices.step(int(edges.offer.sum()))
        bounds.append(prices.bound)
        assert ((prices.price >= 0) & (prices.price <= edges.offer)).all()
    assert bounds == sorted(bounds)
    assert bounds[-1] > bounds[0]


@given(problem=MIDDLE, seed=SEEDS)
def test_joining_two_plans_takes_the_better_parts(problem: Problem, seed: int) -> None:
    edges, rng = edges_of(problem), np.random.default_rng(seed)
    one, two = (state_of(edges, rng.random(edges.whole.size) < 0.2) for _ in range(2))
    costs = total(edges, one), total(edges, two)
    joined = state_of(edges, one.is_base)
    gained = join(edges, joined, two)
    assert total(edges, joined) <= min(costs)
    assert gained == (total(edges, joined) < costs[0])


def test_parts_of_two_plans_that_are_better_in_different_places() -> None:
    """Two pairs of unrelated twins: each plan has a delta of one of them."""
    matrix = np.full((4, 4), 0.9)
    matrix[0, 1] = matrix[2, 3] = 0.1
    problem = structured_problem("star", 0, 4)
    problem.costs.matrix[:] = matrix
    edges = edges_of(problem)
    one, two = (state_of(edges, np.isin(np.arange(4), [row])) for row in (1, 3))
    assert join(edges, one, two)
    assert one.is_base.tolist() == [False, True, False, True]
    assert [cost_of(edges, one, row) < edges.whole[row] for row in (0, 2)] == [True, True]
    assert not join(edges, one, two)
