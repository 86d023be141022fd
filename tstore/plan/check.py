"""Whether a plan of a group keeps the rules, however it was found."""

from __future__ import annotations

import numpy as np

from tstore.errors import PlanInvariantError
from tstore.plan.pricing import limits, new_ids, price
from tstore.plan.problem import STANDALONE, Assignment, Problem


def check(problem: Problem, assignment: Assignment) -> None:
    """Check an assignment from the costs, independently of how it was found.

    Parameters
    ----------
    problem : Problem
    assignment : Assignment

    Raises
    ------
    PlanInvariantError
        A base is out of range, the tensor itself or a delta; a ratio is not the predicted one;
        or a delta is not `min_gain` below the standalone ratio.
    """
    n, k, base = problem.standalone.size, problem.n_stored, assignment.base
    _require(base.shape == assignment.ratio.shape == (n,), "one base and ratio per new tensor")
    _require(((base >= STANDALONE) & (base < k + n)).all(), f"bases from -1 to {k + n - 1}")
    ids = new_ids(problem)
    _require((base != ids).all(), "no tensor to be its own base")
    new = base[base >= k] - k
    _require((base[new] == STANDALONE).all(), "only tensors stored whole as bases")
    deltas = np.flatnonzero(base != STANDALONE)
    expected = problem.standalone.copy()
    expected[deltas] = price(problem, ids[deltas], base[deltas, None])[:, 0]
    _require((assignment.ratio == expected).all(), "the predicted ratio of each choice")
    gains = expected[deltas] <= limits(problem)[deltas]
    _require(gains.all(), f"deltas at least {problem.min_gain} below their standalone ratio")


def _require(holds: bool | np.bool_, rule: str) -> None:
    if not holds:
        raise PlanInvariantError(
            f"expected {rule}, found a plan that breaks this; discard it and report the defect"
        )
