"""The simulated hub: reproducible, exact in floats, and not all of it in memory."""

import numpy as np

from benchmarks.planning.scale import NUMBERS, UNRELATED, simulate
from tstore.plan.check import check
from tstore.plan.flexsplit import arrive, split


def test_a_simulated_hub_has_all_its_tensors_and_plans_well() -> None:
    sizes = []
    for problem in simulate(600):
        first = arrive(problem)
        second = split(problem, first)
        check(problem, second)
        sizes.append(second.base.size)
        assert second.ratio.sum() <= first.ratio.sum() <= problem.standalone.sum()
    assert sum(sizes) == 600


def test_products_of_sketches_are_exact() -> None:
    """Sums of whole numbers below 2**24 do not depend on their order."""
    problem = next(simulate(300))
    squares = (problem.costs.sketches.astype(np.int64) ** 2).sum(axis=1)
    assert squares.max() < 1 << 24
    ids = np.arange(300)
    sketches = problem.costs.sketches.astype(np.int64)
    exact = ((sketches[:20, None] - sketches) ** 2).sum(axis=2)
    ratios = problem.costs.ratios(ids[:20], ids)
    order = np.argsort(exact, axis=None)
    assert (np.diff(ratios.ravel()[order]) >= 0).all()
    assert ratios[0, 0] == 0
    assert exact.max() < 1.5 * 2 * NUMBERS * 38**2 / UNRELATED


def test_the_same_seed_gives_the_same_hub() -> None:
    one, two = (next(simulate(100, seed=1)).costs.sketches for _ in range(2))
    assert (one == two).all()


def test_near_tensors_are_the_nearest_of_the_folded_ones() -> None:
    problem = next(simulate(200))
    ids = np.arange(200)
    near = problem.costs.near(ids, ids[::2], 3)
    folded = problem.costs.folded
    squared = ((folded[:, None] - folded[::2]) ** 2).sum(axis=2)
    expected = 2 * np.sort(np.argsort(squared, axis=1, kind="stable")[:, :3], axis=1)
    assert np.sort(near, axis=1).tolist() == expected.tolist()
    few = problem.costs.near(ids[:2], ids[:1], 3)
    assert few.tolist() == [[0, -1, -1]] * 2
