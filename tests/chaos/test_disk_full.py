"""A store on a disk that fills up: one clear line, and after room is made the same command."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.chaos_runs import check_store, content, reader, run, running, seed
from support.two_nodes import TwoNodes
from tstore.catalog import open_store
from tstore.restore.verify import verify
from tstore.settings import KIB, MIB

pytestmark = pytest.mark.chaos
DISK_NBYTES = 100 * MIB
ROOM = {"scan": 256 * KIB, "encode": 6 * MIB}
"""Bytes that are free at the start: so that the disk is full in that stage."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_NBYTES}", "none", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a tmpfs")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture(scope="module")
def on_disk(
    cluster: TwoNodes,
    local_hub: Path,
    seed_hub: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Any]:
    """Content of a local store whose job met nothing."""
    store = seed(seed_hub, str(tmp_path_factory.mktemp("roomy") / "store"))
    run(cluster.environment, local_hub, store)
    return content(store)


@pytest.mark.parametrize("stage", ROOM)
def test_the_disk_is_full(
    stage: str,
    disk: Path,
    cluster: TwoNodes,
    local_hub: Path,
    seed_hub: Path,
    on_disk: dict[str, Any],
    tell: Callable[[str], None],
) -> None:
    store = seed(seed_hub, str(disk / "store"))
    ballast = disk / "ballast"
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(disk).free - ROOM[stage])
    with reader(store, seed_hub, cluster.environment) as reads:
        with running(cluster.environment, local_hub, store, "--lease-s", "4") as job:
            told = job.ends(2)
        errors = [line for line in told.splitlines() if line.startswith("error:")]
        assert len(errors) == 1
        assert "No space left on device; free space and run the same command again" in errors[0]
        assert "Traceback" not in told
        assert not (problems := verify(open_store(store), read_data=True).problems), problems

        ballast.unlink()
        report = run(cluster.environment, local_hub, store)
    struck = report["stages"][stage]
    assert struck["resumed"] < struck["shards"], "the disk was full in that stage"
    if stage == "encode":
        assert report["stages"]["scan"]["resumed"] == report["stages"]["scan"]["shards"]
    check_store(store, on_disk)
    resumed = {name: s["resumed"] for name, s in report["stages"].items() if s["resumed"]}
    tell(f"{errors[0]!r}; resumed {resumed}; second run {report['seconds']:.1f} s; {reads}")
