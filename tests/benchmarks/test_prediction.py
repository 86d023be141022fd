"""Predictions are judged on pairs they were not fitted on; strangers are refused."""

import numpy as np
import pytest

from benchmarks.planning import prediction
from benchmarks.planning.hub import Hub
from benchmarks.planning.prediction import Judged, strangers

from .conftest import SETTINGS


@pytest.fixture(scope="module")
def judged(bench):
    return prediction.judge_predictions(bench)


def test_each_model_is_judged_on_every_other_pair(judged, bench):
    n = len(bench.choose_pairs("BF16", prediction.PAIRS))
    assert [one.codec for one in judged] == ["tensorx", "fmpp", "ulprow"]
    assert {one.real.size for one in judged} == {n // 2}
    for row in prediction.errors_table(judged).rows:
        _, _, _, pairs, r, mae, *_ = row
        assert pairs == n // 2
        assert r > 0.98
        assert mae < 0.05


def test_real_sizes_are_real(judged, bench):
    pair = bench.choose_pairs("BF16", prediction.PAIRS)[1]
    (nbytes,) = bench.sizes.measured([(pair.target_id, pair.base_id, "tensorx")])
    assert judged[0].real[0] == nbytes / pair.nbytes
    assert judged[0].p[0] == pytest.approx(pair.distance)


def test_errors():
    predicted = {"a": np.array([0.2, 0.2, 0.5]), "b": np.array([0.1, 0.2, 0.9])}
    one = Judged("F32", "fmpp", np.zeros(3), np.array([0.1, 0.2, 0.9]), predicted)
    first, second = prediction.errors_table([one]).rows
    assert first[:4] == ("F32", "fmpp", "a", 3)
    r, mae, p50, p90, p99 = first[4:]
    assert (mae, p50) == pytest.approx((0.5 / 3, 0.1))
    assert p50 < p90 < p99 <= 0.4
    assert 0 < r < 1
    assert second[2:] == ("b", 3, pytest.approx(1), 0, 0, 0, 0)
    pairs = prediction.pairs_table([one]).rows
    assert pairs[2] == ("F32", "fmpp", 0.0, 0.9, 0.5, 0.9)


def test_strangers_have_no_relative(hub):
    assert strangers(hub) == ["other/stranger"]
    unknown = Hub(hub.contents, hub.tensors, {}, {}, SETTINGS)
    assert strangers(unknown) == []


def test_unrelated_pairs_are_refused(bench):
    table = prediction.refusals_table(bench)
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    assert [(row["pairs of"], row["codec"]) for row in rows] == [
        (kind, codec)
        for kind in ("unrelated model", "another layer")
        for codec in ("tensorx", "fmpp", "ulprow")
    ]
    assert [row["pairs"] for row in rows] == [4 * 20] * 3 + [6 * 6] * 3
    for row in rows:
        assert row["refused"] == row["pairs"]
        assert row["taken"] == row["taken wrongly"] == 0


def test_taken_pairs_are_checked_against_real_sizes(bench, monkeypatch):
    monkeypatch.setattr(prediction, "_taken", lambda bench, pair, codec: True)
    for row in prediction.refusals_table(bench).rows:
        assert row[4:] == (0, row[3], row[3])  # none refused, all taken, all wrongly
