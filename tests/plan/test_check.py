"""The check of a plan refuses every broken rule."""

from dataclasses import replace

import numpy as np
import pytest

from support.problems import problem_of
from tstore.errors import PlanInvariantError
from tstore.plan.check import check
from tstore.plan.problem import Assignment, Problem


@pytest.fixture
def planned() -> tuple[Problem, Assignment]:
    """A stored tensor with a delta, and a new base with two."""
    ratio = np.full((5, 5), 0.9)
    ratio[1, 0], ratio[3, 2], ratio[4, 2] = 0.3, 0.2, 0.25
    plan = Assignment(np.array([0, -1, 2, 2]), np.array([0.3, 0.66, 0.2, 0.25]))
    return problem_of(ratio, n_stored=1), plan


def refuse(problem: Problem, plan: Assignment, rule: str) -> None:
    with pytest.raises(PlanInvariantError, match=f"expected {rule}"):
        check(problem, plan)


def test_a_sound_plan_passes(planned: tuple[Problem, Assignment]) -> None:
    check(*planned)


@pytest.mark.parametrize("base", [-2, 5])
def test_a_base_out_of_range(planned: tuple[Problem, Assignment], base: int) -> None:
    problem, plan = planned
    plan.base[0] = base
    refuse(problem, plan, "bases from -1 to 4")


def test_a_tensor_as_its_own_base(planned: tuple[Problem, Assignment]) -> None:
    problem, plan = planned
    plan.base[0] = 1
    refuse(problem, plan, "no tensor to be its own base")


def test_a_delta_as_base(planned: tuple[Problem, Assignment]) -> None:
    problem, plan = planned
    plan.base[0] = 3
    refuse(problem, plan, "only tensors stored whole")


@pytest.mark.parametrize("row", [0, 1, 2])
def test_a_ratio_that_was_not_predicted(planned: tuple[Problem, Assignment], row: int) -> None:
    problem, plan = planned
    plan.ratio[row] = np.nextafter(plan.ratio[row], 0)
    refuse(problem, plan, "the predicted ratio")


def test_a_delta_without_gain(planned: tuple[Problem, Assignment]) -> None:
    problem, plan = planned
    refuse(replace(problem, min_gain=0.42), plan, "deltas at least 0.42 below")


def test_a_plan_for_another_number_of_tensors(planned: tuple[Problem, Assignment]) -> None:
    problem, plan = planned
    refuse(problem, replace(plan, base=plan.base[:-1]), "one base and ratio per new tensor")
    refuse(problem, replace(plan, ratio=plan.ratio[:-1]), "one base and ratio per new tensor")
