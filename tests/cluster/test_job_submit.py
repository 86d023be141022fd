"""Jobs on a running cluster that wants a token: by ``ray job submit``, or run beside it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tstore
import tstore_codecs
from support.hubs import file_hashes
from support.inline import ingest_inline
from support.jobs import EXAMPLES, INGEST, TIMEOUT_S, run_ingest
from support.ray_head import ask_dashboard, ray_head
from support.stores import restore_all
from tstore.catalog import keys, open_store
from tstore.restore.describe import list_repos
from tstore.restore.files import restore_repo
from tstore.restore.verify import verify

Environment = dict[str, str]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Environment]:
    with ray_head(dashboard=True) as environment:
        yield environment


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example hub without its broken repository."""
    hub = tmp_path_factory.mktemp("hub") / "hub"
    return shutil.copytree(EXAMPLES, hub, ignore=shutil.ignore_patterns("broken"))


def ray_job(cluster: Environment, *args: str | Path) -> subprocess.CompletedProcess[str]:
    """Run ``ray job …`` from a directory that has nothing to do with the job."""
    environment = {name: value for name, value in cluster.items() if name != "RAY_ADDRESS"}
    return subprocess.run(
        ["ray", "job", *args],
        env=environment,
        cwd="/",
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def submit(
    cluster: Environment, *command: str | Path, options: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """Submit a program, and wait for it unless the options say otherwise."""
    return ray_job(cluster, "submit", *options, "--", *command)


def info(cluster: Environment, job: str) -> dict[str, Any]:
    """What the cluster knows about a job."""
    return dict(json.loads(ask_dashboard(cluster, f"/api/jobs/{job}")))


def ingest(hub: Path, store: Path) -> tuple[str | Path, ...]:
    return ("python", INGEST, "--hub", hub, "--store", store, "--json")


def test_a_job_ends_with_its_json_and_tells_its_throughput(
    cluster: Environment, hub: Path, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    done = submit(cluster, *ingest(hub, store), options=("--submission-id", "whole"))
    assert done.returncode == 0, done.stdout
    assert info(cluster, "whole")["status"] == "SUCCEEDED"
    log = ray_job(cluster, "logs", "whole").stdout
    (line,) = (line for line in log.splitlines() if line.startswith('{"run":'))
    report = json.loads(line)
    assert report["files"] == len(file_hashes(hub))
    for stage in ("scan", "encode"):
        (progress,) = (line for line in log.splitlines() if line.startswith(stage.rjust(8) + "  "))
        assert "MB/s" in progress
    assert open_store(str(store)).catalog().runs[-1].run_id == report["run"]
    assert file_hashes(restore_all(store, tmp_path / "restored")) == file_hashes(hub)


def test_nothing_committed_is_exit_code_2_of_the_program(
    cluster: Environment, tmp_path: Path
) -> None:
    """Ray's own is 1 whatever went wrong; that of the program is in the message."""
    done = submit(cluster, *ingest(tmp_path / "nowhere", tmp_path / "store"))
    assert done.returncode == 1
    assert "error: expected" in done.stdout
    assert "exit code 2" in done.stdout + done.stderr


def test_without_the_token_nothing_is_run(cluster: Environment, tmp_path: Path) -> None:
    other = tmp_path / "token"
    other.write_text("0" * 64)
    store = tmp_path / "store"
    done = submit({**cluster, "RAY_AUTH_TOKEN_PATH": str(other)}, *ingest(EXAMPLES, store))
    assert done.returncode == 1
    assert "token" in done.stderr.lower()
    assert not store.exists()


def test_a_stopped_job_leaves_a_sound_store_and_the_same_command_goes_on(
    cluster: Environment, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    submit(cluster, *ingest(EXAMPLES, store), options=("--submission-id", "stopped", "--no-wait"))
    hold_once_scanned(store)

    assert ray_job(cluster, "stop", "stopped").returncode == 0

    assert info(cluster, "stopped")["status"] == "STOPPED"
    assert not open_store(str(store)).catalog().runs
    assert not verify(open_store(str(store)), read_data=True).problems
    again = submit(cluster, *ingest(EXAMPLES, store))
    assert "going on with the work of an interrupted job" in again.stdout
    # This hub has a broken file: it is in, and the program says so.
    assert again.returncode == 1
    assert "kept as opaque bytes" in again.stdout
    assert "exit code 1" in again.stdout + again.stderr
    assert file_hashes(restore_all(store, tmp_path / "restored")) == file_hashes(EXAMPLES)


def hold_once_scanned(store: Path) -> None:
    """Wait until the job has results to lose, then halt it: the stop is to find it at work."""
    deadline = time.monotonic() + TIMEOUT_S
    while not list(store.glob("staging/*/scan/*/done.json")):
        assert time.monotonic() < deadline, "expected the job to scan"
        time.sleep(0.01)
    writer = json.loads((store / keys.WRITER_LEASE).read_text())
    os.kill(writer["pid"], signal.SIGSTOP)


def test_other_code_on_the_workers_is_told_in_one_line(
    cluster: Environment, hub: Path, tmp_path: Path
) -> None:
    """The driver takes a copy of the package in which a class has another name."""
    for package in (tstore, tstore_codecs):
        source = Path(package.__path__[0])
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(source, tmp_path / "site" / source.name, ignore=ignored)
    for module in (tmp_path / "site").rglob("*.py"):
        module.write_text(module.read_text().replace("ScanShard", "ShardToScan"))
    path = f"PYTHONPATH={tmp_path / 'site'}"
    done = submit(cluster, "env", path, *ingest(hub, tmp_path / "store"))
    assert done.returncode == 1
    # Ray repeats the end of the log.
    (line,) = {line for line in done.stdout.splitlines() if line.startswith("error:")}
    assert "VersionSkewError" in line
    assert "install the same package on every node" in line
    assert not open_store(str(tmp_path / "store")).catalog().runs


def test_a_second_run_takes_only_what_is_new(cluster: Environment, tmp_path: Path) -> None:
    hub, store = tmp_path / "hub", tmp_path / "store"
    shutil.copytree(EXAMPLES, hub, ignore=shutil.ignore_patterns("broken", "pygpt-renamed"))
    ingest_inline(hub, store)
    again, told = run_ingest(cluster, "--hub", hub, "--store", store, code=0)
    assert again["run"] is None
    assert again["stages"] == {}
    assert "nothing new" in told

    arrived = ("broken/pygpt-truncated", "zeta/pygpt-renamed")
    for path in arrived:
        shutil.copytree(EXAMPLES / path, hub / path)
    more, told = run_ingest(cluster, "--hub", hub, "--store", store, code=1)
    assert more["files"] == sum(len(file_hashes(EXAMPLES / path)) for path in arrived)
    assert more["files_rejected"] == 1
    assert "kept as opaque bytes" in told
    assert set(arrived) < {repo.repo for repo in list_repos(open_store(str(store)))}
    restore_repo(open_store(str(store)), "broken/pygpt-truncated", tmp_path / "broken")
    assert file_hashes(tmp_path / "broken") == file_hashes(EXAMPLES / "broken/pygpt-truncated")
    new = open_store(str(store)).catalog().runs[-1]
    assert new.counts["tensors_unique"] < more["tensors"]


def test_a_dry_run_predicts_and_writes_nothing(
    cluster: Environment, hub: Path, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    counts, _ = run_ingest(cluster, "--hub", hub, "--store", store, "--dry-run", code=0)
    assert not store.exists()
    assert 0 < counts["bytes_stored"] < counts["bytes_in"]
