"""The approximate index proposes the nearest sketches, the same ones each time."""

import numpy as np
import pytest

from support.hubs import bf16_weights, drifted
from tstore.plan.costs import SketchCosts
from tstore.plan.neighbours import NeighbourIndex
from tstore.predict.tensorpred import prior
from tstore.settings import SketchSettings
from tstore.sketch.distances import distance, group_distances
from tstore.sketch.layout import SketchLayout
from tstore.sketch.tensorsketch import build

SKETCH = SketchSettings()
LAYOUT = SketchLayout.of("BF16", SKETCH)
NBYTES = 64 * 128 * 2
SIZES = np.full(400, NBYTES)


@pytest.fixture(scope="module")
def sketches():
    """Fifty families of eight, each member at another distance from its root."""
    rng = np.random.default_rng(0)
    tensors = []
    for _ in range(50):
        root = bf16_weights(rng, 64, 128)
        tensors += [drifted(rng, root, 0.02 * i) for i in range(8)]
    return np.stack([build(tensor.tobytes(), "BF16", SKETCH) for tensor in tensors])


def exact(sketches, targets, bases):
    return distance(group_distances(sketches[targets], sketches[bases], LAYOUT, NBYTES), LAYOUT)


def test_proposes_the_nearest(sketches):
    everyone = np.arange(len(sketches))
    index = NeighbourIndex(sketches, LAYOUT)
    assert index.extend_to(everyone)
    found = index.nearest(everyone, 8)
    assert (found[:, 0] == everyone).mean() > 0.99, "itself"
    same_family = found // 8 == everyone[:, None] // 8
    assert same_family.mean() > 0.98
    p = exact(sketches, everyone, everyone)
    np.fill_diagonal(p, np.inf)
    nearest = p.argmin(axis=1)
    assert (found == nearest[:, None]).any(axis=1).mean() > 0.99


def test_only_what_was_taken_in_is_found(sketches):
    index = NeighbourIndex(sketches, LAYOUT)
    assert index.nearest(np.arange(3), 4).tolist() == [[-1] * 4] * 3
    assert index.extend_to(np.array([5, 9]))
    found = index.nearest(np.arange(3), 4)
    assert set(found.ravel().tolist()) == {5, 9, -1}
    assert (found[:, 2:] == -1).all()
    assert index.extend_to(np.array([5, 9, 11]))
    assert not index.extend_to(np.array([5])), "it cannot forget"
    assert index.nearest(np.empty(0, np.int64), 4).shape == (0, 4)


def test_building_it_step_by_step_is_deterministic(sketches):
    def build_up():
        index = NeighbourIndex(sketches, LAYOUT)
        for last in range(50, 401, 50):
            index.extend_to(np.arange(last))
        return index.nearest(np.arange(400), 16)

    assert (build_up() == build_up()).all()


def test_costs_forget_bases_that_are_none_any_more(sketches):
    costs = SketchCosts(sketches, LAYOUT, SIZES, prior("BF16", "ulprow", LAYOUT.shares))
    targets = np.arange(8)
    first = costs.near(targets, np.arange(8, 80), 4)
    assert (first >= 8).all()
    grown = costs.near(targets, np.arange(0, 80), 4)
    assert (grown[:, 0] == targets).all()
    shrunk = costs.near(targets, np.arange(16, 80), 4)
    assert (shrunk >= 16).all()


def test_ratios_are_those_of_the_predictor(sketches):
    predictor = prior("BF16", "ulprow", LAYOUT.shares)
    costs = SketchCosts(sketches, LAYOUT, SIZES, predictor)
    targets, bases = np.array([3, 100]), np.array([0, 1, 96])
    p = group_distances(sketches[targets], sketches[bases], LAYOUT, NBYTES)
    found = costs.ratios(targets, bases)
    assert found.tolist() == predictor.ratio(p, NBYTES).tolist()
    assert costs.pairs(targets, bases[:2]).tolist() == found.diagonal().tolist()
    assert found[0].argmin() in (0, 1)
    assert found[1].argmin() == 2
