"""The planners that FlexSplit is compared with, and how close it comes to the optimum."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.planning.solvers import first_base, ilp, primal_dual
from support.problems import KINDS, optimum, problem_of, random_problem, structured_problem
from tstore.plan.check import check
from tstore.plan.flexsplit import assign, replan
from tstore.plan.problem import Problem

SEEDS = st.integers(0, 10**6)
ANY = st.builds(
    random_problem, SEEDS, st.integers(0, 8), st.integers(0, 3), levels=st.sampled_from([0, 4])
)
METRIC = st.builds(
    structured_problem, st.sampled_from(KINDS), SEEDS, st.integers(1, 9), st.integers(0, 3)
)
ROUNDING = 1e-6


@settings(max_examples=50)
@given(problem=ANY | METRIC)
def test_the_integer_program_finds_the_optimum(problem: Problem) -> None:
    plan = ilp(problem)
    check(problem, plan)
    assert plan.ratio.sum() == pytest.approx(optimum(problem), abs=ROUNDING)


@given(problem=METRIC)
def test_the_primal_dual_schema_is_within_three_times_the_optimum(problem: Problem) -> None:
    plan = primal_dual(problem)
    check(problem, plan)
    assert plan.ratio.sum() <= 3 * optimum(problem) + ROUNDING
    assert plan.ratio.sum() <= problem.standalone.sum() + ROUNDING


@given(problem=ANY)
def test_all_solvers_keep_the_rules_whatever_the_costs(problem: Problem) -> None:
    for solver in (first_base, primal_dual):
        check(problem, solver(problem))


def test_the_primal_dual_schema_opens_what_is_paid_first() -> None:
    """A star of four: its middle is paid at a quarter of the difference, before any other."""
    matrix = np.full((5, 5), 0.6)
    matrix[:, 2] = 0.1
    plan = primal_dual(problem_of(matrix))
    assert plan.base.tolist() == [2, 2, -1, 2, 2]


def test_the_first_base_serves_those_that_gain() -> None:
    matrix = np.full((4, 4), 0.2)
    matrix[2, 0] = 0.65
    assert first_base(problem_of(matrix)).base.tolist() == [-1, 0, -1, 0]
    assert first_base(problem_of(matrix, n_stored=1)).base.tolist() == [0, -1, 0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_flexsplit_is_within_a_per_cent_of_the_optimum(kind: str, noise: float) -> None:
    for seed in range(3):
        problem = structured_problem(kind, seed, 60, 3 * (seed % 2), noise=noise)
        least = ilp(problem).ratio.sum()
        for planner in (assign, replan):
            assert least - ROUNDING <= planner(problem).ratio.sum() <= 1.01 * least
        assert primal_dual(problem).ratio.sum() <= 1.5 * least
