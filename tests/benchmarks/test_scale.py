"""The simulated hub: reproducible, like a real one, and not all of it in memory."""

import numpy as np
import pytest

from benchmarks.planning.scale import LAYOUT, NBYTES, UNRELATED, simulate
from tstore.plan.check import check
from tstore.plan.flexsplit import arrive, split
from tstore.sketch.distances import distance, group_distances


def test_a_simulated_hub_has_all_its_tensors_and_plans_well() -> None:
    sizes = []
    for problem in simulate(600):
        first = arrive(problem)
        second = split(problem, first)
        check(problem, second)
        sizes.append(second.base.size)
        assert second.ratio.sum() <= first.ratio.sum() <= problem.standalone.sum()
    assert sum(sizes) == 600


def test_distances_are_those_that_were_simulated() -> None:
    """Unrelated tensors differ in the share of bits that they should, families in less."""
    problem = next(simulate(4800))  # a sixteenth is in the largest group
    ids = np.arange(300)
    p = group_distances(problem.costs.sketches, problem.costs.sketches, LAYOUT, NBYTES)
    shares = distance(p, LAYOUT)[np.triu_indices(300, k=1)]
    assert np.median(shares) == pytest.approx(UNRELATED, abs=0.01)
    assert shares.min() < 0.05
    assert (problem.costs.ratios(ids[:2], ids[:2]).diagonal() == 0).all()


def test_the_same_seed_gives_the_same_hub() -> None:
    one, two = (next(simulate(800, seed=1)).costs.sketches for _ in range(2))
    assert (one == two).all()
