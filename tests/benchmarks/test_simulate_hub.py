"""The simulated hub goes through the real stages, and both ways of planning it agree."""

from contextlib import nullcontext
from pathlib import Path

import pytest

from benchmarks.simulate_hub import plan_staged, plan_streamed
from support.inline import run_stage_inline

N = 2000


def test_a_hub_of_two_thousand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tstore.cluster.job.fan_out", run_stage_inline)
    monkeypatch.setattr("tstore.cluster.planning.FEW_SKETCHES", 100)
    monkeypatch.setattr("tstore.plan.shards.SHARD_ROWS", 300)
    found, streamed = plan_staged(N, str(tmp_path / "store"), nullcontext), plan_streamed(N)
    assert found.groups == streamed.groups > 20
    assert found.largest == streamed.largest == N // 16
    assert found.standalone == pytest.approx(streamed.standalone)
    assert found.planned == pytest.approx(streamed.planned, rel=0.01)
    assert found.planned < 0.5 * found.standalone
    assert found.deltas == pytest.approx(streamed.deltas, rel=0.01)
    assert found.driver_nbytes > 0
    assert {"sort", "plan"} <= found.seconds.keys()
