"""TensorPred: monotone, bounded, fitted where that helps, the entropy bound elsewhere."""

import json
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tstore.predict.tensorpred import MIN_PAIRS, FitReport, TensorPred, fit, prior

coefficient = st.floats(-20, 20)


def entropy(p):
    return -p * np.log2(p) - (1 - p) * np.log2(1 - p)


def equation_3(p, alpha, beta, gamma, epsilon):
    tau = 8 * entropy(p)
    return alpha * p + beta * tau + gamma * p * tau + epsilon


@given(alpha=coefficient, beta=coefficient, gamma=coefficient, epsilon=coefficient)
def test_ratio_is_monotone_and_bounded(alpha, beta, gamma, epsilon):
    model = TensorPred("BF16", "tensorx", alpha, beta, gamma, epsilon, "fitted", 0.4, None)
    ratio = model.ratio(np.linspace(0, 1, 3001))
    assert (np.diff(ratio) >= 0).all()
    assert ratio.min() >= 0
    assert ratio.max() <= 1
    assert len(set(ratio[1500:].tolist())) == 1  # constant from p = 0.5 on


def test_ratio_follows_equation_3_where_it_rises():
    model = TensorPred("BF16", "tensorx", -0.4, -0.09, 0.01, 0.99, "fitted", 0.5, None)
    p = np.linspace(0.01, 0.3, 50)
    expected = 1 - equation_3(p, -0.4, -0.09, 0.01, 0.99)
    assert model.ratio(p) == pytest.approx(expected, abs=1e-4)
    assert model.ratio(np.array([0.0])) == pytest.approx(0.01)
    assert model.ratio(p.reshape(5, 10)).shape == (5, 10)


def test_prior_is_the_entropy_of_independent_flips():
    model = prior("F32", "fmpp")
    p = np.linspace(0.001, 0.5, 100)
    assert model.kind == "prior"
    assert model.report is None
    assert model.ratio(p) == pytest.approx(entropy(p), abs=2e-3)
    assert model.ratio(np.array([0.0, 0.5, 0.9])).tolist() == [0.0, 1.0, 1.0]


def measured(n, noise, p_max=0.38):
    rng = np.random.default_rng(7)
    p = np.sort(rng.uniform(0.002, p_max, n))
    ratio = 1 - equation_3(p, -0.3, -0.08, 0.0, 0.98) + noise * rng.standard_normal(n)
    return p, ratio


def test_fit_recovers_the_coefficients():
    p, ratio = measured(60, noise=0)
    model = fit("BF16", "tensorx", p, ratio)
    assert model.kind == "fitted"
    found = [model.alpha, model.beta, model.gamma, model.epsilon]
    assert found == pytest.approx([-0.3, -0.08, 0.0, 0.98], abs=1e-6)
    assert model.report.n == 60
    assert model.report.mae < 1e-3
    assert model.report.r > 0.999


def test_report_states_the_error_on_pairs_left_out():
    model = fit("BF16", "tensorx", *measured(400, noise=0.01))
    report = model.report
    assert 0.007 < report.mae < 0.010  # E|N(0, 0.01)| = 0.008
    assert report.p50 < report.mae < report.p90 < report.p99


def test_few_pairs_give_the_prior():
    p, ratio = measured(MIN_PAIRS, noise=0)
    assert fit("BF16", "tensorx", p[:-1], ratio[:-1]) == prior("BF16", "tensorx")
    assert fit("BF16", "tensorx", p, ratio).report.n == MIN_PAIRS


def test_prior_is_kept_where_it_predicts_better():
    rng = np.random.default_rng(0)
    p = np.concatenate([np.full(MIN_PAIRS - 1, 0.1) + 1e-6 * rng.standard_normal(7), [0.4]])
    model = fit("BF16", "tensorx", p, entropy(p))
    assert model.kind == "prior"
    assert model.report.mae < 1e-3
    assert model.ratio(p) == pytest.approx(entropy(p), abs=1e-3)


def test_unseen_distances_promise_no_more_than_the_prior():
    """A fit to close pairs alone says nothing about unrelated tensors."""
    p, ratio = measured(40, noise=0.002, p_max=0.05)
    model = fit("BF16", "tensorx", p, ratio)
    far = np.linspace(0.06, 0.5, 50)
    assert model.kind == "fitted"
    assert (model.ratio(far) >= entropy(far) - 2e-3).all()


def test_constant_measurements_are_no_error():
    p = np.linspace(0.1, 0.2, 20)
    report = fit("BF16", "tensorx", p, np.full(20, 0.5)).report
    assert report.r == 0.0
    assert report.mae < 1e-9


@pytest.mark.parametrize("report", [None, FitReport(60, 0.9, 0.01, 0.008, 0.02, 0.03)])
def test_survives_json_and_pickle(report):
    model = TensorPred("BF16", "ulprow", -0.3, -0.08, 0.25, 0.98, "fitted", 0.37, report)
    assert TensorPred.from_json(json.loads(json.dumps(model.to_json()))) == model
    p = np.linspace(0, 1, 11)
    assert pickle.loads(pickle.dumps(model)).ratio(p).tolist() == model.ratio(p).tolist()


def test_caller_data_is_left_alone():
    p, ratio = measured(20, noise=0.01)
    p.flags.writeable = ratio.flags.writeable = False
    fit("BF16", "tensorx", p, ratio)


def test_near_pairs_are_not_lost_to_a_fit_that_saw_none() -> None:
    # F32 deltas: nothing nearer than 0.15, an S-shaped rise; equation (3) bends up towards p = 0.
    p = np.linspace(0.15, 0.48, 48)
    ratio = 0.45 + 0.45 / (1 + np.exp(-40 * (p - 0.34)))
    model = fit("F32", "ulprow", p, ratio)
    assert model.kind == "fitted"
    assert np.abs(model.ratio(p) - ratio).mean() < 0.05
    assert model.ratio(np.array([0.0]))[0] <= model.ratio(p[:1])[0]
    assert TensorPred.from_json(model.to_json()) == model


def test_pairs_may_all_be_estimated_farther_than_a_half() -> None:
    p = np.linspace(0.501, 0.52, 20)
    model = fit("F16", "ulprow", p, 0.7 + p / 10)
    assert np.isfinite(model.ratio(np.array([0.0, 0.3, 0.5, 0.52]))).all()
