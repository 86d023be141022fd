"""Two jobs on one store: one writes, the other waits, and nobody writes after a lost lease."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.chaos_job import AFTER_SHARDS
from support.chaos_runs import Environment, check_store, reader, running
from support.two_nodes import TwoNodes, is_stopped
from tstore.catalog import open_store

pytestmark = pytest.mark.chaos
LEASE_S = 8.0
SHORT = ("--lease-s", str(LEASE_S))
GOING_ON = "going on with the work"


@pytest.fixture
def elsewhere(cluster: TwoNodes) -> Environment:
    """Where a second job runs that needs nothing of the cluster: a Ray of its own."""
    return {n: v for n, v in cluster.environment.items() if not n.startswith("RAY_")}


def test_the_second_waits_or_gives_up(
    cluster: TwoNodes,
    hub: str,
    store: str,
    seed_hub: Path,
    undisturbed: dict[str, Any],
    tell: Callable[[str], None],
) -> None:
    environment = cluster.environment
    with (
        reader(store, seed_hub, environment) as reads,
        running(environment, hub, store, "--halt-in", "scan") as first,
    ):
        (worker,) = first.wait_for_halt("scan")
        with (
            running(environment, hub, store) as patient,
            running(environment, hub, store, "--wait-s", "1") as hasty,
        ):
            refused = hasty.ends(2)
            assert first.process.poll() is None
            assert f"held by ingest of {hub} (process {first.pid} on " in refused
            assert sum(line.startswith("error:") for line in refused.splitlines()) == 1
            holder = f"waiting for ingest of {hub} (process {first.pid}"
            patient.wait_until(lambda: holder in patient.told, "the second to wait")
            os.kill(worker, signal.SIGCONT)
            report = first.report()
            second = patient.report()
    assert report["run"]
    assert second["run"] is None, "nothing is left to do"
    check_store(store, undisturbed)
    tell(f"first {report['seconds']:.1f} s, second {second['seconds']:.1f} s; {reads}")


def test_a_holder_that_died_on_another_machine(
    cluster: TwoNodes,
    hub: str,
    store: str,
    seed_hub: Path,
    undisturbed: dict[str, Any],
    tell: Callable[[str], None],
) -> None:
    environment = cluster.environment
    with (
        reader(store, seed_hub, environment) as reads,
        running(environment, hub, store, *SHORT, "--elsewhere", "--halt-in", "encode") as first,
    ):
        (worker,) = first.wait_for_halt("encode")  # so it holds the lease
        with running(environment, hub, store, *SHORT) as second:
            holder = f"waiting for ingest of {hub} (process {first.pid} on "
            second.wait_until(lambda: holder in second.told, "the second to wait")
            for process in (worker, first.pid):
                os.kill(process, signal.SIGKILL)
            died = time.monotonic()
            second.wait_until(lambda: GOING_ON in second.told, "the second to go on")
            waited = time.monotonic() - died
            report = second.report()
    assert waited > LEASE_S / 2
    assert report["stages"]["encode"]["resumed"] >= AFTER_SHARDS
    check_store(store, undisturbed)
    tell(f"went on {waited:.1f} s after the death, lease {LEASE_S:.0f} s; {reads}")


@pytest.mark.parametrize("moment", ["encode", "write_tables", "commit"])
def test_a_holder_that_slept_beyond_its_lease_commits_nothing(
    moment: str,
    cluster: TwoNodes,
    elsewhere: Environment,
    hub: str,
    store: str,
    seed_hub: Path,
    undisturbed: dict[str, Any],
    tell: Callable[[str], None],
) -> None:
    halt = ("--halt-in" if moment == "encode" else "--halt-before", moment)
    with (
        reader(store, seed_hub, cluster.environment) as reads,
        running(cluster.environment, hub, store, *SHORT, *halt) as sleeper,
    ):
        if moment == "encode":
            (worker,) = sleeper.wait_for_halt("encode")
            os.kill(sleeper.pid, signal.SIGSTOP)
            os.kill(worker, signal.SIGCONT)
        sleeper.wait_until(lambda: is_stopped(sleeper.pid), "the first to halt")
        with running(elsewhere, hub, store, *SHORT) as second:
            report = second.report()
        assert report["run"]
        os.kill(sleeper.pid, signal.SIGCONT)
        told = sleeper.ends(2)
    assert sum(line.startswith("error:") for line in told.splitlines()) == 1, told
    assert "found that another job took" in told
    assert "nothing was committed, run the job again" in told
    runs = [run.run_id for run in open_store(store).catalog().runs]
    assert runs[-1] == report["run"]
    check_store(store, undisturbed)
    tell(f"second {report['seconds']:.1f} s; {reads}")
