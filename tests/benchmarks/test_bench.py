"""Plans of the whole hub, in one run and model by model."""

import numpy as np

from benchmarks.planning.bench import arriving, solve
from tstore.plan.check import check
from tstore.plan.flexsplit import assign
from tstore.plan.problem import STANDALONE, Assignment


def test_tensors_arrive_with_the_model_that_had_them_first(hub):
    ids = arriving(hub)
    assert list(ids) == list(hub.contents)
    assert [name for own in ids.values() for name in own] == list(hub.arrivals)
    assert len(ids["lab/base"]) == 5
    assert len(ids["org/tuned"]) == 4  # its norm is the base's


def test_problems_price_pairs_of_their_group(hub, bench):
    (group,) = hub.groups
    problem = bench.problem(group, "fmpp")
    assert problem.names == group.ids
    check(problem, assign(problem))
    real = bench.sizes.measured([(group.ids[4], group.ids[0], "fmpp")])[0] / group.nbytes
    assert abs(problem.costs.ratios(np.array([4]), np.array([0]))[0, 0] - real) < 0.03


def test_one_run_plans_related_tensors_as_deltas(hub, bench):
    plan = bench.plan(hub, "fmpp", assign)
    assert list(plan) == list(hub.arrivals)
    family = [plan[i] for model, ids in arriving(hub).items() for i in ids if model[0] != "o"]
    assert sum(base is not None for base in plan.values()) == 16  # 20 relatives, 4 bases
    assert all(plan[base] is None for base in plan.values() if base is not None)
    strange = [plan[i] for i in arriving(hub)["other/stranger"]]
    assert strange == [None] * 5
    assert family


def test_model_by_model_never_changes_what_is_stored(hub, bench):
    """A planner that would undo earlier choices is never asked to."""
    seen = []

    def last_stored(problem):
        seen.append((problem.n_stored, len(problem.names)))
        base = STANDALONE if problem.n_stored == 0 else problem.n_stored - 1
        n = len(problem.names) - problem.n_stored
        return Assignment(np.full(n, base), problem.standalone.copy())

    plan = bench.plan_by_model(hub, "fmpp", last_stored)
    assert seen == [(0, 4), *[(4, 8)] * 5]
    last = hub.contents["lab/base"]["3.weight"]
    later = [i for i in hub.groups[0].ids if hub.arrivals[i][0] != "lab/base"]
    assert {plan[name] for name in later} == {last}


def test_solve_names_bases(hub, bench):
    (group,) = hub.groups
    problem = bench.problem(group, "fmpp")
    base = np.full(24, STANDALONE)
    base[7] = 2
    plan = solve(problem, lambda problem: Assignment(base, problem.standalone))
    assert plan == {**dict.fromkeys(group.ids), group.ids[7]: group.ids[2]}
