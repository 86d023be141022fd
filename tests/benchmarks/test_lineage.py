"""Baselines that pair by lineage and name do just that."""

import numpy as np

from benchmarks.planning.hub import Hub
from benchmarks.planning.lineage import by_lineage, card, zipllm
from tstore.plan.problem import STANDALONE, Problem

from .conftest import SETTINGS


def pairs(hub, plan):
    """Names of target and base, for tensors that have one."""
    arrivals = hub.arrivals
    return {arrivals[name]: arrivals[base] for name, base in plan.items() if base is not None}


def test_zipllm_goes_by_card_then_by_bits_and_pairs_by_name(hub, bench):
    found = pairs(hub, bench.plan(hub, "tensorx", zipllm(hub, bench.distances)))
    weights = [f"{i}.weight" for i in range(4)]
    by_card = {("org/tuned", name): ("lab/base", name) for name in weights}
    # The nearest models are deltas of the base, so the base it is: chains have depth 1.
    by_bits = {
        (model, name): ("lab/base", name)
        for model in ("org/run/step-1", "zoo/merge")
        for name in weights
    }
    assert found == {**by_card, **by_bits}  # none for the renamed one, nor for the stranger


def test_zipllm_compares_models_over_the_tensors_they_share(hub, bench):
    contents = {
        "lab/base": hub.contents["lab/base"],
        "other/stranger": hub.contents["other/stranger"],
        # Nearer to the stranger in the one tensor they share than to the base.
        "org/tuned": {
            **hub.contents["org/tuned"],
            "3.weight": hub.contents["other/stranger"]["3.weight"],
        },
    }
    without_cards = Hub(contents, hub.tensors, {}, {}, SETTINGS)
    found = pairs(
        without_cards,
        bench.plan(without_cards, "tensorx", zipllm(without_cards, bench.distances)),
    )
    assert found == {("org/tuned", f"{i}.weight"): ("lab/base", f"{i}.weight") for i in range(3)}


def test_cards_count_for_the_share_that_has_them(hub, bench):
    assert pairs(hub, bench.plan(hub, "tensorx", card(hub, 0.0))) == {}
    everyone = pairs(hub, bench.plan(hub, "tensorx", card(hub, 1.0)))
    assert {target[0] for target in everyone} == {"org/tuned", "org/run/step-1", "zoo/merge"}
    some = pairs(hub, bench.plan(hub, "tensorx", card(hub, 0.5)))
    assert set(some) < set(everyone)


class Flat:
    """Costs that tell ids apart."""

    def ratios(self, targets, bases):
        return 0.5 + 0.001 * np.subtract.outer(targets, bases)

    def pairs(self, targets, bases):
        return 0.5 + 0.001 * (targets - bases)

    def near(self, targets, bases, count):
        raise AssertionError("not asked for")


def test_a_base_that_is_a_delta_is_replaced_by_its_own():
    contents = {"a": {"w": "1"}, "b": {"w": "2"}, "c": {"w": "3"}, "d": {"v": "4"}}
    chain = by_lineage(Hub(contents, {}, {}, {}, SETTINGS), {"b": "a", "c": "b", "d": "a"})
    problem = Problem(("1", "2", "3", "4"), 0, np.full(4, 0.7), Flat(), 0.02)
    found = chain(problem)
    assert found.base.tolist() == [STANDALONE, 0, 0, STANDALONE]
    assert found.ratio.tolist() == [0.7, 0.501, 0.502, 0.7]


def test_stored_tensors_serve_as_bases():
    contents = {"a": {"w": "1"}, "b": {"w": "2"}}
    planner = by_lineage(Hub(contents, {}, {}, {}, SETTINGS), {"b": "a"})
    problem = Problem(("0", "1", "2"), 2, np.array([0.7]), Flat(), 0.02)
    assert planner(problem).base.tolist() == [1]
