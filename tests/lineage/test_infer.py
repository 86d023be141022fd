"""From distances to parents, on points whose history is known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tstore.lineage.infer import Evidence, infer


def steps(rng, count, size=4000):
    """Directions of training steps, which are unrelated to one another."""
    return rng.normal(size=(count, size))


def evidence(points, *, limit=np.inf, runs=(), anchored=()):
    """What is known of models at these points; `runs` are lists of checkpoints in order."""
    points = np.array(points)
    n = len(points)
    distance = np.sqrt(((points[:, None] - points) ** 2).sum(axis=2))
    earlier = np.zeros((n, n), dtype=bool)
    for run in runs:
        for i, early in enumerate(run):
            earlier[early, run[i + 1 :]] = True
    related = (distance <= limit) & ~np.eye(n, dtype=bool)
    mask = np.isin(np.arange(n), anchored)
    return Evidence(distance, related, earlier, mask)


def test_siblings_are_children_of_the_centre_and_a_chain_goes_through_its_links():
    a, b, c, d = steps(np.random.default_rng(0), 4)
    root = np.zeros_like(a)
    tree = infer(evidence([root, a, b, c, a + 0.8 * d]))
    assert tree.parents == [[], [0], [0], [0], [1]]
    assert tree.root == [0] * 5


def test_the_average_of_two_is_their_merge_and_no_parent():
    a, b, *others = steps(np.random.default_rng(1), 8)
    tree = infer(evidence([0 * a, a, b, *others, (a + b) / 2]))
    assert tree.parents[:9] == [[], *[[0]] * 8]
    assert sorted(tree.parents[9]) == [1, 2]


def test_a_run_without_a_centre_follows_its_checkpoints():
    points = np.cumsum(steps(np.random.default_rng(2), 6), axis=0)
    tree = infer(evidence(points, runs=[range(6)]))
    assert tree.parents == [[], [0], [1], [2], [3], [4]]


def test_a_sibling_that_drifted_the_same_way_is_no_parent():
    a, b, c, d = steps(np.random.default_rng(3), 4)
    root = np.zeros_like(a)
    near, far = 0.3 * a, 1.0 * b + 0.04 * a  # a hundredth of the way in common
    tree = infer(evidence([root, near, far, c, d]))
    assert tree.parents[2] == [0]


def test_two_alone_have_no_direction_but_for_a_copy_or_a_run():
    a, b = steps(np.random.default_rng(4), 2)
    assert infer(evidence([a, b])).parents == [[], []]
    assert infer(evidence([a, b])).root == [None, None]
    assert infer(evidence([a, b], anchored=[1])).parents == [[1], []]
    assert infer(evidence([a, b], runs=[[1, 0]])).parents == [[1], []]


def test_strangers_have_no_parents():
    points = steps(np.random.default_rng(5), 3)
    assert infer(evidence(points, limit=1.0)).parents == [[], [], []]
    nothing = evidence(np.empty((0, 3)))
    assert infer(nothing).parents == []


@pytest.mark.parametrize("seed", range(3))
@given(data=st.data())
def test_numbering_does_not_matter(seed, data):
    a, b, c, d, e, *others = steps(np.random.default_rng(seed), 8, 1000)
    points = np.array([0 * a, a, b, c, a + d, (b + c) / 2, a + d + 0.7 * e, *others])
    order = data.draw(st.permutations(range(len(points))))
    expected = infer(evidence(points)).parents
    found = infer(evidence(points[order])).parents
    for new, old in enumerate(order):
        assert sorted(order[p] for p in found[new]) == sorted(expected[old])
