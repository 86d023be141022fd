"""An object store that is away for a while, or fails now and then; hub and store on it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.chaos_runs import check_store, finished, reader, run, running
from support.faulty_proxy import Fault, faulty_proxy
from support.hubs import file_hashes
from support.seaweed import Seaweed
from support.two_nodes import TwoNodes, two_nodes

pytestmark = pytest.mark.chaos
OUTAGE_S = 10.0
ONE_IN_TWENTY = {
    Fault.SLOW_DOWN: 0.005,
    Fault.UNAVAILABLE: 0.01,
    Fault.INTERNAL: 0.005,
    Fault.DROPPED: 0.01,
    Fault.LOST: 0.01,
    Fault.TORN: 0.005,
    Fault.DELAYED: 0.005,
}
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("stage", ["scan", "encode"])
def test_the_server_dies_and_comes_back(
    stage: str,
    server: Seaweed,
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
        server.kill()
        os.kill(worker, signal.SIGCONT)
        try:
            with pytest.raises(subprocess.TimeoutExpired):
                job.process.wait(OUTAGE_S)
        finally:
            server.start()
        report = job.report()
    assert done < report["stages"][stage]["shards"]
    check_store(store, undisturbed)
    shards = report["stages"][stage]["shards"]
    tell(f"struck after {done} of {shards} shards; job {report['seconds']:.1f} s; {reads}")


def test_one_request_in_twenty_fails(
    server: Seaweed,
    hub: str,
    store: str,
    seed_hub: Path,
    undisturbed: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    tell: Callable[[str], None],
) -> None:
    with faulty_proxy(server.endpoint, ONE_IN_TWENTY, seed=5) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        with (
            two_nodes() as cluster,  # workers find the proxy, too
            reader(store, seed_hub, cluster.environment) as reads,
        ):
            report = run(cluster.environment, hub, store)
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
    fired = {fault.name: proxy.fired[fault] for fault in ONE_IN_TWENTY}
    assert min(fired.values()) >= 1, fired
    check_store(store, undisturbed)
    tell(f"faults {fired}; job {report['seconds']:.1f} s; {reads}")


def command(environment: dict[str, str], *args: str | Path, code: int = 0) -> str:
    """Run a program; its stdout."""
    done = subprocess.run(
        args, env=environment, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == code, done.stderr
    return done.stdout


def test_the_commands_on_a_hub_and_a_store_on_s3(
    cluster: TwoNodes, hub: str, server: Seaweed, local_hub: Path, tmp_path: Path
) -> None:
    store, environment = server.uri(), cluster.environment
    ingest = (sys.executable, ROOT / "jobs" / "ingest.py", "--hub", hub, "--store", store, "--json")
    counts = json.loads(command(environment, *ingest, code=1).splitlines()[-1])
    assert counts["files"] == len(file_hashes(local_hub))
    assert counts["files_rejected"] == 1, "the broken one, kept as opaque bytes"

    tstore = str(Path(sys.executable).parent / "tstore")
    told = command(environment, tstore, "ls", store)
    assert [line.split()[0] for line in told.splitlines()] == sorted(
        path.removesuffix("/model.safetensors") for path in file_hashes(local_hub)
    )
    for repo in ("lab0/broken", "lab0/tune3", "mirror/again"):
        command(environment, tstore, "restore", store, repo, tmp_path / repo)
        assert file_hashes(tmp_path / repo) == file_hashes(local_hub / repo)
    assert "all present" in command(environment, tstore, "verify", store)
    assert "all decoded and compared" in command(
        environment, tstore, "verify", store, "--read-data"
    )
