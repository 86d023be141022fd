"""Prices by block equal prices one by one."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.problems import MIN_GAIN, MatrixCosts, random_problem
from tstore.plan import pricing
from tstore.plan.pricing import cheapest, new_ids, price, stored_only
from tstore.plan.problem import Ints, Problem

PROBLEMS = st.builds(
    random_problem,
    st.integers(0, 10**6),
    st.integers(1, 150),
    st.integers(0, 9),
    levels=st.sampled_from([0, 3]),
)


def plain_cheapest(problem: Problem, target: int, bases: list[int]) -> tuple[int, float]:
    ratio = problem.costs.matrix[target]
    base = min((b for b in bases if b != target), key=lambda b: (ratio[b], b), default=-1)
    return base, ratio[base] if base >= 0 else np.inf


@given(problem=PROBLEMS, seed=st.integers(0, 1000))
def test_each_target_is_priced_against_its_own_bases(problem: Problem, seed: int) -> None:
    targets, n = new_ids(problem), len(problem.names)
    bases = np.random.default_rng(seed).integers(-1, n, (targets.size, 3))
    expected = np.where(bases < 0, np.inf, problem.costs.matrix[targets[:, None], bases])
    assert price(problem, targets, bases).tolist() == expected.tolist()


@given(problem=PROBLEMS, seed=st.integers(0, 1000))
def test_the_cheapest_base_is_the_lowest_of_equals(problem: Problem, seed: int) -> None:
    n = len(problem.names)
    bases = np.flatnonzero(np.random.default_rng(seed).random(n) < 0.3)
    found = zip(*cheapest(problem, np.arange(n), bases), strict=True)
    assert list(found) == [plain_cheapest(problem, t, bases.tolist()) for t in range(n)]


def test_blocks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = random_problem(5, 100, 7, levels=3)
    everything = np.arange(107)
    expected = cheapest(problem, everything, everything)
    monkeypatch.setattr(pricing, "ROWS", 9)
    monkeypatch.setattr(pricing, "BASES", 4)
    for one, two in zip(cheapest(problem, everything, everything), expected, strict=True):
        assert one.tolist() == two.tolist()


class LostCosts(MatrixCosts):
    """No tensor is near any other."""

    def near(self, targets: Ints, bases: Ints, count: int) -> Ints:
        return np.full((targets.size, count), -1)


class BackwardCosts(MatrixCosts):
    """Near tensors, the farthest first."""

    def near(self, targets: Ints, bases: Ints, count: int) -> Ints:
        return super().near(targets, bases, count)[:, ::-1]


def test_of_near_bases_too_the_lowest_of_equals_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = random_problem(7, 100, 7, levels=3)
    targets, bases = np.arange(57), np.arange(57, 107)
    expected = cheapest(problem, targets, bases)
    monkeypatch.setattr(pricing, "MAX_EXACT_BASES", 0)
    backwards = replace(problem, costs=BackwardCosts(problem.costs.matrix))
    for one, two in zip(cheapest(backwards, targets, bases), expected, strict=True):
        assert one.tolist() == two.tolist()


def test_of_many_bases_the_near_ones_are_priced(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = random_problem(6, 100, 7)
    targets, bases = np.arange(57), np.arange(57, 107)
    expected = cheapest(problem, targets, bases)
    monkeypatch.setattr(pricing, "MAX_EXACT_BASES", 49)
    monkeypatch.setattr(pricing, "N_LIKELY", 1)
    for one, two in zip(cheapest(problem, targets, bases), expected, strict=True):
        assert one.tolist() == two.tolist()
    lost = replace(problem, costs=LostCosts(problem.costs.matrix))
    base, ratio = cheapest(lost, targets, bases)
    assert set(base.tolist()) == {-1}
    assert np.isinf(ratio).all()


@given(problem=PROBLEMS)
def test_offers_are_the_cheapest_stored_bases_that_gain_enough(problem: Problem) -> None:
    offers = stored_only(problem)
    for row, alone in enumerate(problem.standalone):
        base, ratio = plain_cheapest(problem, problem.n_stored + row, list(range(problem.n_stored)))
        expected = (base, ratio) if ratio <= alone - MIN_GAIN else (-1, alone)
        assert (offers.base[row], offers.ratio[row]) == expected
