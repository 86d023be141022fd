"""TensorPred: monotone, bounded, the best of its models where pairs were measured."""

import json
import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tstore.predict import tensorpred
from tstore.predict.kernels import add_interpolated
from tstore.predict.models import GRID, Equation3, PlaneGroups, Prior, entropy
from tstore.predict.tensorpred import (
    MIN_PAIRS,
    FitReport,
    Measured,
    TensorPred,
    fit,
    prior,
)

SHARES = (0.25, 0.25, 0.25, 0.25)
NBYTES = 1 << 20
free = st.floats(-20, 20)
positive = st.floats(0, 5)
four = st.tuples(positive, positive, positive, positive)
models = st.one_of(
    st.just(Prior(SHARES)),
    st.builds(Equation3, st.just(SHARES), free, free, free, free, st.floats(0, 0.4)),
    st.builds(PlaneGroups, four, four, positive, st.floats(-1, 1)),
)


def predictor(model, p_min=0.0, p_max=1.0):
    return TensorPred("BF16", "tensorx", SHARES, model, p_min, p_max, {})


def along(p):
    """Pairs whose groups all differ by p."""
    return np.tile(p, (4, 1))


@given(
    model=models,
    limits=st.tuples(st.floats(0, 0.6), st.floats(0, 0.6)).map(sorted),
    p=st.lists(st.floats(0, 1), min_size=4, max_size=4),
    more=st.lists(st.floats(0, 1), min_size=4, max_size=4),
    nbytes=st.integers(1, 1 << 30),
)
def test_ratio_is_monotone_in_every_group_and_bounded(model, limits, p, more, nbytes):
    low = np.array(p)[:, None]
    high = np.minimum(low + np.array(more)[:, None], 1.0)
    below, above = (predictor(model, *limits).ratio(x, nbytes)[0] for x in (low, high))
    assert 0 <= below <= above + 1e-9
    assert above <= 1


@given(model=models)
def test_bits_beyond_coin_flips_change_nothing(model):
    ratio = model.ratio(along(np.linspace(0.5, 1, 50)), NBYTES)
    assert np.ptp(ratio) == 0


def test_interpolation_equals_numpys():
    rng = np.random.default_rng(0)
    curve, p = rng.random(GRID.size), np.append(rng.random(1000), [0.0, 0.5, 1.0, 0.25])
    total = np.ones(p.size)
    add_interpolated(curve, p, total)
    assert total - 1 == pytest.approx(np.interp(p, GRID, curve), abs=1e-12)


def test_prior_is_the_entropy_of_independent_flips():
    model = prior("F32", "fmpp", SHARES)
    p = np.linspace(0.001, 0.5, 100)
    assert model.name == "prior"
    assert model.report is None
    assert model.ratio(along(p), NBYTES) == pytest.approx(entropy(p), abs=2e-3)
    ends = model.ratio(along(np.array([0.0, 0.5, 0.9])), NBYTES)
    assert ends.tolist() == [0.0, 1.0, 1.0]
    assert model.ratio(np.array([[0.5], [0], [0], [0]]), NBYTES).tolist() == [0.25]


def equation_3(p, alpha, beta, gamma, epsilon):
    tau = 8 * entropy(p)
    return alpha * p + beta * tau + gamma * p * tau + epsilon


def test_equation_3_is_followed_where_it_rises():
    model = predictor(Equation3(SHARES, -0.4, -0.09, 0.01, 0.99))
    p = np.linspace(0.01, 0.3, 50)
    assert model.ratio(along(p), NBYTES) == pytest.approx(
        1 - equation_3(p, -0.4, -0.09, 0.01, 0.99), abs=1e-4
    )
    # Only the overall p counts.
    uneven = np.array([[0.2], [0.0], [0.1], [0.1]])
    assert model.ratio(uneven, NBYTES) == pytest.approx(model.ratio(along([0.1]), NBYTES))


def test_equation_3_asks_no_more_below_the_nearest_measured_pair_than_there():
    bent = Equation3(SHARES, 0.0, -0.05, 0.0, 0.7, p_min=0.1)
    rising_to_zero = Equation3(SHARES, 4.0, -0.1, 0.0, 0.5, p_min=0.1)
    for model in (bent, rising_to_zero):
        ratio = model.ratio(along(np.linspace(0, 0.1, 20)), NBYTES)
        assert (ratio <= ratio[-1] + 1e-3).all()


def test_no_fit_is_trusted_far_beyond_what_was_measured():
    """Groups that never differed in the pairs got no weight: unrelated tensors do differ there."""
    model = predictor(PlaneGroups((0.0,) * 4, (0.0,) * 4, 0.0, 0.1), p_max=0.2)
    p = np.array([0.1, 0.2, 0.215, 0.23, 0.3])
    ratio = model.ratio(along(p), NBYTES)
    assert ratio[:3].tolist() == [0.1] * 3
    assert ratio[3:] == pytest.approx(entropy(p[3:]), abs=1e-3)


def test_near_pairs_are_not_lost_to_a_fit_that_saw_unrelated_ones_only():
    """The first run of a store may hold one model: the first fine-tune must find its base."""
    model = predictor(PlaneGroups((0.0,) * 4, (0.0,) * 4, 0.0, 0.7), p_min=0.3, p_max=0.36)
    p = np.array([0.0, 0.01, 0.05, 0.29, 0.3, 0.35])
    ratio = model.ratio(along(p), NBYTES)
    assert ratio[:3] == pytest.approx(entropy(p[:3]), abs=1e-3)
    assert ratio[3:].tolist() == [0.7] * 3


TRUTH = PlaneGroups((0.05, 0.1, 0.0, 0.0), (0.15, 0.25, 0.1, 0.4), 300.0, 0.01)


def measured(n, noise=0.0, seed=7):
    """Pairs whose groups differ by very different shares."""
    rng = np.random.default_rng(seed)
    p = np.sort(rng.uniform(0.001, 0.5, (4, n)) ** [[1], [2], [3], [5]], axis=1)
    nbytes = rng.choice([6_000, 300_000, 4_000_000], n)
    ratio = TRUTH.ratio(p, nbytes)
    return Measured(p, ratio + noise * rng.standard_normal(n), nbytes)


def test_fit_recovers_the_curves():
    model = fit("BF16", "tensorx", SHARES, measured(80))
    assert model.name == "plane-groups"
    assert model.report.n == 80
    assert model.report.mae < 1e-4
    assert model.report.r > 0.999
    unseen = measured(200, seed=8)
    assert model.ratio(unseen.p, unseen.nbytes) == pytest.approx(unseen.ratio, abs=1e-3)


def test_a_few_special_pairs_do_not_tilt_the_fit():
    pairs = measured(60, noise=0.002)
    ratio = pairs.ratio.copy()
    ratio[[50, 55, 59]] *= 0.4
    model = fit("F32", "ulprow", SHARES, Measured(pairs.p, ratio, pairs.nbytes))
    unseen = measured(200, seed=8)
    assert np.abs(model.ratio(unseen.p, unseen.nbytes) - unseen.ratio).mean() < 0.004


def test_report_states_the_error_on_pairs_left_out():
    report = fit("BF16", "tensorx", SHARES, measured(400, noise=0.01)).report
    assert 0.007 < report.mae < 0.010  # E|N(0, 0.01)| = 0.008
    assert report.p50 < report.mae < report.p90 < report.p99


def test_equation_3_is_kept_where_it_predicts_better():
    """Sizes that follow the overall p, by a law that plane groups cannot follow."""
    rng = np.random.default_rng(1)
    p = rng.uniform(0.001, 0.3, (4, 60))
    ratio = 1 - equation_3(p.mean(axis=0), 0.0, -0.1, 0.1, 0.98)
    model = fit("BF16", "tensorx", SHARES, Measured(p, ratio, np.full(60, NBYTES)))
    assert model.name == "equation-3"
    assert model.reports["equation-3"].mae < 1e-3 < model.reports["plane-groups"].mae
    found = [getattr(model.model, name) for name in ("alpha", "beta", "gamma", "epsilon")]
    assert found == pytest.approx([0.0, -0.1, 0.1, 0.98], abs=1e-6)


def test_prior_is_kept_where_it_predicts_better():
    pairs = measured(12)
    rng = np.random.default_rng(0)
    ratio = np.clip(Prior(SHARES).ratio(pairs.p, NBYTES), 0, 1)
    noisy = Measured(pairs.p, ratio + 0.05 * rng.standard_normal(12), pairs.nbytes)
    model = fit("BF16", "tensorx", SHARES, noisy)
    assert model.reports.keys() == {"plane-groups", "equation-3", "prior"}
    assert model.report.mae == min(report.mae for report in model.reports.values())


def test_few_pairs_give_the_prior():
    pairs = measured(MIN_PAIRS)
    few = pairs.take(np.arange(MIN_PAIRS - 1))
    assert fit("BF16", "tensorx", SHARES, few) == prior("BF16", "tensorx", SHARES)
    assert fit("BF16", "tensorx", SHARES, pairs).report.n == MIN_PAIRS


def test_pairs_that_are_all_alike_are_no_reason_to_fail():
    same = Measured(np.full((4, 20), 0.6), np.full(20, 0.9), np.full(20, NBYTES))
    model = fit("BF16", "tensorx", SHARES, same)
    assert model.ratio(along([0.6]), NBYTES) == pytest.approx([0.9], abs=0.01)
    assert model.report.r == 0


@pytest.mark.parametrize("name", ["plane-groups", "equation-3", "prior"])
def test_json_and_pickle_round_trips(name, monkeypatch):
    model = fit("BF16", "tensorx", SHARES, measured(20, noise=0.01))
    fitted = {
        "plane-groups": TRUTH,
        "equation-3": Equation3(SHARES, 1.0, 2.0, 3.0, 4.0, 0.1),
        "prior": Prior(SHARES),
    }[name]
    model = replace(model, model=fitted)
    assert model.name == name
    assert TensorPred.from_json(json.loads(json.dumps(model.to_json()))) == model
    assert pickle.loads(pickle.dumps(model)) == model
    assert model.report == model.reports[name]
    assert isinstance(model.report, FitReport)


@pytest.mark.parametrize(
    "change",
    [
        {"name": "magic"},
        {"name": "equation-3"},
        {"model": {"linear": [0.1], "entropic": [0.1], "overhead": 0.0, "constant": 0.0}},
        {"model": {"linear": [0.1] * 4, "entropic": [0.1] * 3, "overhead": 0.0, "constant": 0.0}},
        {"model": {**TRUTH.__dict__, "constant": float("nan")}},
        {"model": {**TRUTH.__dict__, "linear": [float("inf"), 0, 0, 0]}},
        {"model": {**TRUTH.__dict__, "overhead": "many"}},
        {"model": None},
        {"shares": [0.5, 0.5]},
        {"shares": 1},
        {"p_min": None},
        {"p_max": "far"},
        {"p_max": float("nan")},
        {"reports": {"prior": {"n": 3}}},
        {"reports": [1]},
    ],
)
def test_json_of_something_else_is_refused(change):
    values = fit("BF16", "tensorx", SHARES, measured(20)).to_json()
    assert TensorPred.from_json(values).name == "plane-groups"
    with pytest.raises(ValueError):  # noqa: PT011
        TensorPred.from_json({**values, **change})


def test_fits_do_not_depend_on_the_order_of_models(monkeypatch):
    """Of equally good models the first named is taken: plane groups."""
    monkeypatch.setattr(
        tensorpred, "_cross_validate", lambda *_: FitReport(9, 0.0, 0.5, 0.5, 0.5, 0.5)
    )
    assert fit("BF16", "tensorx", SHARES, measured(20)).name == "plane-groups"
