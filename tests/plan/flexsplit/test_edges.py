"""Edges are the deltas worth having, by target and by base, whatever way they were priced."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.problems import MIN_GAIN, problem_of, random_problem
from tstore.plan.flexsplit import edges as module
from tstore.plan.flexsplit.edges import Edges, all_edges, likely, likely_edges
from tstore.plan.pricing import new_ids, stored_only
from tstore.plan.problem import Assignment, Problem

PROBLEMS = st.builds(
    random_problem,
    st.integers(0, 10**6),
    st.integers(0, 40),
    st.integers(0, 3),
    levels=st.sampled_from([0, 4]),
)
ONE = 1 << 30


def plain_options(problem: Problem) -> list[list[tuple[int, int]]]:
    """(cost, base) of each new tensor, cheapest first."""
    k, n, matrix = problem.n_stored, problem.standalone.size, problem.costs.matrix
    offers = stored_only(problem).ratio
    return [
        sorted(
            (round(matrix[k + row, k + base] * ONE), base)
            for base in range(n)
            if base != row
            and matrix[k + row, k + base] <= problem.standalone[row] - MIN_GAIN
            and matrix[k + row, k + base] < offers[row]
        )
        for row in range(n)
    ]


def options(edges: Edges) -> list[list[tuple[int, int]]]:
    pairs = [(int(key) >> 32, int(key) & 0xFFFFFFFF) for key in edges.options]
    return [pairs[a:b] for a, b in zip(edges.first[:-1], edges.first[1:], strict=True)]


def equal(one: Edges, two: Edges) -> bool:
    return all(a.tolist() == b.tolist() for a, b in zip(one, two, strict=True))


@given(problem=PROBLEMS)
def test_edges_are_the_deltas_worth_having(problem: Problem) -> None:
    edges = all_edges(problem, stored_only(problem))
    assert options(edges) == plain_options(problem)
    assert edges.whole.tolist() == np.rint(problem.standalone * ONE).tolist()
    assert edges.offer.tolist() == np.rint(stored_only(problem).ratio * ONE).tolist()


@given(problem=PROBLEMS)
def test_both_arrangements_hold_the_same_edges(problem: Problem) -> None:
    edges = all_edges(problem, stored_only(problem))
    by_target = [
        (target, base, cost) for target, pairs in enumerate(options(edges)) for cost, base in pairs
    ]
    by_base = [
        (int(edges.clients[e]), base, int(edges.costs[e]))
        for base in range(edges.whole.size)
        for e in range(edges.first_client[base], edges.first_client[base + 1])
    ]
    assert by_base == sorted(by_base, key=lambda edge: (edge[1], edge[0]))
    assert sorted(by_base) == sorted(by_target)


def test_blocks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = random_problem(1, 40, 2, levels=5)
    expected = all_edges(problem, stored_only(problem))
    for pairs in (1, 100):
        monkeypatch.setattr(module, "PAIRS", pairs)
        assert equal(all_edges(problem, stored_only(problem)), expected)


@given(problem=PROBLEMS, seed=st.integers(0, 1000))
def test_likely_bases_that_are_all_bases_give_all_edges(problem: Problem, seed: int) -> None:
    """In any order, some of them twice, with stored ones and none among them."""
    ids, rng = new_ids(problem), np.random.default_rng(seed)
    offers = stored_only(problem)
    everything = np.concatenate([np.arange(-1, len(problem.names)), ids[: ids.size // 2]])
    shuffled = rng.permuted(np.tile(everything, (ids.size, 1)), axis=1)
    parts = [likely(problem, offers, part) for part in np.array_split(shuffled, 3, axis=1)]
    assert equal(likely_edges(problem, offers, *parts), all_edges(problem, offers))


def test_stored_bases_are_no_nodes() -> None:
    """Not even one that the offers have missed."""
    problem = problem_of(np.full((4, 4), 0.1), n_stored=2)
    missed = Assignment(np.full(2, -1), problem.standalone)
    bases = np.array([[0, 1, -1], [1, 2, 0]])
    edges = likely_edges(problem, missed, likely(problem, missed, bases))
    assert options(edges) == [[], [(round(0.1 * ONE), 0)]]


def test_costs_fit_however_large_ratios_are() -> None:
    problem = problem_of(np.array([[0, 30.0], [99, 0]]), np.array([40.0, 99.0]))
    edges = all_edges(problem, stored_only(problem))
    assert options(edges)[1] == []
    assert options(edges)[0][0][0] / edges.whole[0] == pytest.approx(30 / 40, abs=1e-8)
    assert edges.whole.max() <= ONE
