"""FlexSplit: invariants on random groups, families with a known best plan, the true optimum."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from support.problems import (
    KINDS,
    MIN_GAIN,
    MatrixCosts,
    optimum,
    problem_of,
    random_problem,
    reordered,
    structured_problem,
)
from tstore.plan import pricing
from tstore.plan.check import check
from tstore.plan.flexsplit import arrive, assign, phases, replan, split
from tstore.plan.problem import Assignment, Floats, Ints, Problem

SEEDS = st.integers(0, 10**6)
SMALL = st.builds(random_problem, SEEDS, st.integers(0, 8), st.integers(0, 3)) | st.builds(
    structured_problem,
    st.sampled_from(KINDS),
    SEEDS,
    st.integers(0, 8),
    st.integers(0, 3),
    spread=st.sampled_from([1.0, 0.5]),
    noise=st.sampled_from([0.0, 0.1]),
)
MIDDLE = st.builds(
    structured_problem, st.sampled_from(KINDS), SEEDS, st.integers(0, 90), st.integers(0, 3)
)


def same(one: Assignment, two: Assignment) -> bool:
    return one.base.tolist() == two.base.tolist() and one.ratio.tolist() == two.ratio.tolist()


def whole(plan: Assignment) -> list[int]:
    """New tensors stored whole."""
    return np.flatnonzero(plan.base == -1).tolist()


# --- what every plan must be ----------------------------------------------------------------------


@given(problem=SMALL | MIDDLE)
def test_every_plan_keeps_the_rules(problem: Problem) -> None:
    first = arrive(problem)
    second = split(problem, first)
    for plan in (first, second, replan(problem)):
        check(problem, plan)
        assert plan.ratio.sum() <= problem.standalone.sum() + 1e-9
    assert second.ratio.sum() <= first.ratio.sum()


@given(problem=SMALL)
def test_plans_are_deterministic_and_leave_their_input_alone(problem: Problem) -> None:
    first = arrive(problem)
    kept = Assignment(first.base.copy(), first.ratio.copy())
    assert same(split(problem, first), assign(problem))
    assert same(first, kept)


@given(problem=SMALL)
def test_small_groups_are_within_a_per_cent_of_the_optimum(problem: Problem) -> None:
    best = optimum(problem)
    assert best - 1e-9 <= assign(problem).ratio.sum() <= 1.01 * best
    assert best - 1e-9 <= replan(problem).ratio.sum() <= 1.01 * best


@given(problem=MIDDLE, second=st.data())
def test_phase_two_improves_any_plan(problem: Problem, second: st.DataObject) -> None:
    """As good from no deltas at all as from phase I."""
    apart = Assignment(np.full(problem.standalone.size, -1), problem.standalone)
    plan = split(problem, apart)
    check(problem, plan)
    assert plan.ratio.sum() <= 1.02 * assign(problem).ratio.sum()


def test_a_group_without_new_tensors() -> None:
    for n_stored in (0, 3):
        problem = random_problem(0, 0, n_stored)
        for planner in (arrive, assign, replan):
            assert planner(problem).base.size == 0


# --- phase I --------------------------------------------------------------------------------------


def plain_arrive(problem: Problem) -> list[int]:
    """Phase I with one tensor and all pairs at a time."""
    k = problem.n_stored
    ids = np.arange(k + problem.standalone.size)
    ratio = problem.costs.ratios(ids, ids)
    bases, chosen = list(range(k)), []
    for row, alone in enumerate(problem.standalone):
        best = min(bases, key=lambda base, t=k + row: (ratio[t, base], base), default=None)
        if best is not None and ratio[k + row, best] <= alone - MIN_GAIN:
            chosen.append(best)
        else:
            chosen.append(-1)
            bases.append(k + row)
    return chosen


@given(problem=SMALL | st.builds(random_problem, SEEDS, st.just(8), levels=st.just(4)))
def test_phase_one_equals_the_plain_algorithm(problem: Problem) -> None:
    assert arrive(problem).base.tolist() == plain_arrive(problem)


@given(problem=MIDDLE, block=st.sampled_from([1, 7, 64]))
def test_block_size_does_not_matter(problem: Problem, block: int) -> None:
    assert same(arrive(problem, block), arrive(problem))


def test_many_bases_are_searched_by_nearness(monkeypatch: pytest.MonkeyPatch) -> None:
    problems = [structured_problem("families", seed, 90, 5) for seed in range(5)]
    exact = [arrive(problem) for problem in problems]
    monkeypatch.setattr(pricing, "MAX_EXACT_BASES", 2)
    monkeypatch.setattr(pricing, "N_LIKELY", 1)
    for problem, expected in zip(problems, exact, strict=True):
        assert same(arrive(problem, 1), expected)
        assert same(arrive(problem, 16), expected)


# --- phase II -------------------------------------------------------------------------------------


def two_centres() -> Problem:
    """A root first, then a distant relative and, nearer to that than to the root, its own kin."""
    centre = np.array([0, 0, 2, *[2] * 6, *[0] * 3])
    ratio = np.where(centre[:, None] == centre, 0.2, 0.5)
    ratio[[0, 2]] -= 0.05  # nearer to the others than these are to one another
    return problem_of(np.minimum(ratio, ratio.T))


def test_phase_two_splits_a_family_with_two_centres() -> None:
    problem = two_centres()
    first = arrive(problem)
    second = split(problem, first)
    assert whole(first) == [0]
    assert whole(second) == [0, 2]
    assert set(second.base[3:9].tolist()) == {2}
    assert second.ratio.sum() < 0.8 * first.ratio.sum()


def test_a_stored_base_is_used_and_kin_still_get_their_own() -> None:
    problem = problem_of(two_centres().costs.ratios(np.arange(12), np.arange(12)), n_stored=1)
    plan = assign(problem)
    assert whole(plan) == [1]  # the other centre
    assert set(plan.base[2:8].tolist()) == {1 + 1}
    assert set(plan.base[8:].tolist()) == {0}


def test_a_star_gets_its_middle_as_base() -> None:
    """The points are far from one another; arriving first does not make a good base."""
    ratio = np.full((5, 5), 0.5)
    ratio[1], ratio[:, 1] = 0.3, 0.3
    assert assign(problem_of(ratio)).base.tolist() == [1, -1, 1, 1, 1]


def test_a_chain_of_checkpoints_is_cut_into_pieces_around_their_middles() -> None:
    step = np.abs(np.arange(15)[:, None] - np.arange(15))
    plan = assign(problem_of(np.minimum(0.1 * step, 1)))
    assert whole(plan) == [2, 7, 12]
    assert plan.base[[0, 4, 5, 9, 10, 14]].tolist() == [2, 2, 7, 7, 12, 12]


def test_a_base_without_use_becomes_a_delta() -> None:
    problem = problem_of(np.full((2, 2), 0.3))
    plan = split(problem, Assignment(np.array([-1, -1]), problem.standalone))
    assert sorted(plan.base.tolist()) in ([-1, 0], [-1, 1])
    check(problem, plan)


def test_a_delta_becomes_a_base_for_the_sake_of_lone_bases() -> None:
    """Two tensors stored whole without deltas, of which only a delta would be a good base."""
    ratio = np.full((4, 4), 1.0)
    ratio[3, 0] = 0.4  # of the stored tensor
    ratio[[1, 2], 3] = 0.2
    problem = problem_of(ratio, n_stored=1)
    first = arrive(problem)
    assert first.base.tolist() == [-1, -1, 0]
    assert split(problem, first).base.tolist() == [3, 3, -1]


def test_differences_lost_in_rounding_do_not_make_a_plan_worse() -> None:
    """Costs that are equal in fixed point: the search would take the first base."""
    ratio = np.full((5, 5), 0.9)
    ratio[2, 0], ratio[3, 1] = 0.1, 0.1
    ratio[4, :2] = 0.3 + 1e-11, 0.3
    problem = problem_of(ratio)
    first = arrive(problem)
    assert first.base.tolist() == [-1, -1, 0, 1, 1]
    assert same(split(problem, first), first)


def test_unrelated_tensors_are_refused() -> None:
    problem = structured_problem("unrelated", 0, 30, 3)
    assert (assign(problem).base == -1).all()


@pytest.mark.parametrize("n_stored", [0, 1])
def test_a_delta_must_gain_enough(n_stored: int) -> None:
    for gain, base in ((MIN_GAIN, 0), (0.9 * MIN_GAIN, -1)):
        problem = problem_of(np.full((2, 2), 0.75 - gain), 0.75, n_stored)
        assert assign(problem).base.tolist()[-1] == base


def test_no_base_means_standalone_even_for_costs_that_promise_much() -> None:
    assert assign(problem_of(np.zeros((1, 1)), 1.0)).base.tolist() == [-1]


def test_costs_above_the_raw_size_are_planned_too() -> None:
    """Tiny tensors: a frame takes more than the tensor."""
    plan = assign(problem_of(np.array([[0, 3.0, 9], [3, 0, 9], [9, 9, 0]]), 5.0))
    assert plan.base.tolist() == [-1, 0, -1]


# --- replanning -----------------------------------------------------------------------------------


@given(
    problem=MIDDLE
    | st.builds(random_problem, SEEDS, st.integers(0, 20), st.integers(0, 3), levels=st.just(3)),
    order=st.randoms(use_true_random=False),
    twins=st.booleans(),
)
@example(problem=random_problem(0, 9, 2, levels=1), order=None, twins=True)
def test_replanning_does_not_depend_on_the_order_of_arrival(
    problem: Problem, order: object, twins: bool
) -> None:
    k, n = problem.n_stored, problem.standalone.size
    if twins:  # every other tensor costs what the one before it costs
        pairs = np.concatenate([np.arange(k), k + np.arange(n) // 2 * 2])
        matrix = problem.costs.ratios(pairs, pairs)
        problem = problem_of(matrix, problem.standalone[np.arange(n) // 2 * 2], k)
    stored, new = list(range(k)), list(range(k, k + n))
    for ids in (stored, new):
        order.shuffle(ids) if order else ids.reverse()
    other = reordered(problem, np.array(stored + new, dtype=np.int64))
    assert by_name(problem, replan(problem)) == by_name(other, replan(other))


def by_name(problem: Problem, plan: Assignment) -> dict[str, tuple[str | None, float]]:
    names = (*problem.names, None)
    new = problem.names[problem.n_stored :]
    pairs = zip(plan.base, plan.ratio, strict=True)
    return {name: (names[base], ratio) for name, (base, ratio) in zip(new, pairs, strict=True)}


# --- large groups ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spread", [1.0, 0.3])
def test_large_groups_are_planned_from_near_tensors(
    kind: str, spread: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = structured_problem(kind, 1, 300, 4, spread=spread, noise=0.1)
    arrivals = np.concatenate([np.arange(4), 4 + np.random.default_rng(2).permutation(300)])
    problem = reordered(problem, arrivals)
    full = assign(problem)
    monkeypatch.setattr(phases, "MAX_EXACT", 0)
    for planner in (assign, replan):
        sparse = planner(problem)
        check(problem, sparse)
        assert sparse.ratio.sum() <= 1.01 * full.ratio.sum()


def test_clusters_may_be_larger_than_neighbourhoods(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = structured_problem("unrelated", 0, 300, spread=0.005)
    full = assign(problem)
    monkeypatch.setattr(phases, "MAX_EXACT", 0)
    monkeypatch.setattr(phases, "N_NEAR", 16)
    apart = Assignment(np.full(300, -1), problem.standalone)
    assert split(problem, apart).ratio.sum() <= 1.02 * full.ratio.sum()


def test_neighbours_that_are_missed_cost_something_but_break_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class ForgetfulCosts(MatrixCosts):
        def near(self, targets: Ints, bases: Ints, count: int) -> Ints:
            found = super().near(targets, bases, count)
            return np.where((targets[:, None] + found) % 3 == 0, -1, found)

    monkeypatch.setattr(phases, "MAX_EXACT", 0)
    monkeypatch.setattr(pricing, "MAX_EXACT_BASES", 0)
    for seed in range(5):
        problem = structured_problem("mix", seed, 60, 4)
        problem = replace(problem, costs=ForgetfulCosts(problem.costs.matrix))
        first = arrive(problem)
        second = split(problem, first)
        check(problem, second)
        assert second.ratio.sum() <= first.ratio.sum() < problem.standalone.sum()


def test_deltas_whose_base_is_not_found_near_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    class LostCosts(MatrixCosts):
        def near(self, targets: Ints, bases: Ints, count: int) -> Ints:
            found = np.full((targets.size, count), -1)
            found[targets == 4] = 3
            return found

    monkeypatch.setattr(phases, "MAX_EXACT", 0)
    ratio = np.full((5, 5), 0.9)
    ratio[1:3, 0] = ratio[4, 3] = 0.3
    problem = replace(problem_of(ratio), costs=LostCosts(ratio))
    plan = Assignment(np.array([-1, 0, 0, -1, -1]), np.array([0.66, 0.3, 0.3, 0.66, 0.66]))
    assert split(problem, plan).base.tolist() == [-1, 0, 0, -1, 3]


class MeteredCosts:
    """Costs that are not kept anywhere; remembers the largest block asked for."""

    def __init__(self) -> None:
        self.largest = 0

    def ratios(self, targets: Ints, bases: Ints) -> Floats:
        self.largest = max(self.largest, targets.size * bases.size)
        return np.minimum(0.05 + np.abs(targets[:, None] - bases) / 500, 1.0)

    def pairs(self, targets: Ints, bases: Ints) -> Floats:
        self.largest = max(self.largest, targets.size)
        return np.minimum(0.05 + np.abs(targets - bases) / 500, 1.0)

    def near(self, targets: Ints, bases: Ints, count: int) -> Ints:
        first = np.searchsorted(bases, targets) - count // 2
        return bases[np.clip(first, 0, bases.size - count)[:, None] + np.arange(count)]


def test_blocks_stay_small() -> None:
    costs = MeteredCosts()
    n = 5000
    problem = Problem(tuple(map(str, range(n))), 100, np.full(n - 100, 0.66), costs, MIN_GAIN)
    check(problem, assign(problem))
    assert costs.largest <= 1 << 20
