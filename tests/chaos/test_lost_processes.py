"""Workers, nodes and drivers that die at work: nothing is lost, and finished shards stay."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.chaos_runs import check_store, finished, reader, run, running
from support.two_nodes import TwoNodes

pytestmark = pytest.mark.chaos


@pytest.mark.parametrize("stage", ["scan", "encode"])
def test_a_worker_dies(
    stage: str,
    cluster: TwoNodes,
    hub: str,
    store: str,
    seed_hub: Path,
    undisturbed: dict[str, Any],
    tell: Callable[[str], None],
) -> None:
    with (
        reader(store, seed_hub, cluster.environment) as reads,
        running(cluster.environment, hub, store, "--halt-in", stage) as job,
    ):
        (worker,) = job.wait_for_halt(stage)
        done = finished(store, stage)
        os.kill(worker, signal.SIGKILL)
        report = job.report()
    assert done < report["stages"][stage]["shards"]
    check_store(store, undisturbed)
    tell(
        f"struck after {done} of {report['stages'][stage]['shards']} shards; "
        f"job {report['seconds']:.1f} s; {reads}"
    )


def test_a_node_goes_down_and_another_joins(
    cluster: TwoNodes,
    hub: str,
    store: str,
    seed_hub: Path,
    undisturbed: dict[str, Any],
    tell: Callable[[str], None],
) -> None:
    with (
        reader(store, seed_hub, cluster.environment) as reads,
        running(cluster.environment, hub, store, "--halt-in", "encode", "--halting", "3") as job,
    ):
        lost, _ = job.wait_for_halt("encode", 2)  # no node goes on before the new one is up
        done = finished(store, "encode")
        cluster.lose(cluster.node_of(lost))
        new = cluster.add()
        job.wait_until(
            lambda: bool(set(job.halted_workers()) & set(new.processes())),
            "the new node to take a shard",
        )
        for worker in job.halted_workers():
            os.kill(worker, signal.SIGCONT)
        report = job.report()
    assert done < report["stages"]["encode"]["shards"]
    check_store(store, undisturbed)
    tell(
        f"struck after {done} of {report['stages']['encode']['shards']} shards; "
        f"job {report['seconds']:.1f} s; {reads}"
    )


@pytest.mark.parametrize("moment", ["during-scan", "during-encode", "before-commit"])
def test_the_driver_dies_and_the_same_command_goes_on(
    moment: str,
    cluster: TwoNodes,
    hub: str,
    store: str,
    seed_hub: Path,
    undisturbed: dict[str, Any],
    tell: Callable[[str], None],
) -> None:
    with reader(store, seed_hub, cluster.environment) as reads:
        halt = ("--halt-in", moment.removeprefix("during-")) if "during" in moment else ()
        with running(cluster.environment, hub, store, "--die", moment, *halt) as doomed:
            doomed.ends(-signal.SIGKILL)
        done = {stage: finished(store, stage) for stage in ("scan", "encode")}
        report = run(cluster.environment, hub, store)
    stages = report["stages"]
    for stage, count in done.items():
        assert count <= stages[stage]["resumed"] <= stages[stage]["shards"]
    if moment == "during-scan":
        assert 2 <= done["scan"] < stages["scan"]["shards"]
    else:
        assert stages["scan"]["resumed"] == stages["scan"]["shards"]
    if moment == "during-encode":
        assert 2 <= done["encode"] < stages["encode"]["shards"]
    if moment == "before-commit":
        assert stages["encode"]["resumed"] == stages["encode"]["shards"]
    check_store(store, undisturbed)
    resumed = {
        name: f"{s['resumed']} of {s['shards']}" for name, s in stages.items() if s["shards"]
    }
    tell(
        f"finished at the kill {done}, resumed {resumed}; second run {report['seconds']:.1f} s; {reads}"
    )
