"""A tensor of 3 GB and 20,000 tiny ones on workers of 1.5 GiB."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.chaos_hub import write_huge_hub
from support.chaos_runs import run
from support.two_nodes import two_nodes
from tstore.catalog import open_store
from tstore.restore.describe import list_repos
from tstore.restore.files import restore_repo
from tstore.settings import GIB

pytestmark = pytest.mark.chaos
HUGE_NBYTES = 3_000_000_000
N_TINY = 20_000
WORKER_NBYTES = 3 * GIB // 2
DRIVER_NBYTES = GIB


def digests(root: Path) -> dict[str, str]:
    """SHA-256 of every file, read in a stream."""
    found = {}
    for path in root.rglob("*.safetensors"):
        with path.open("rb") as file:
            found[str(path.relative_to(root))] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


@pytest.fixture
def folder() -> Iterator[Path]:
    """Room for 9 GB that is given back at once."""
    folder = Path(tempfile.mkdtemp(prefix="huge-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@pytest.mark.timeout(600)
def test_memory_does_not_grow_with_the_hub(
    folder: Path, tell: Callable[[str], None], server: object
) -> None:
    hub, store = write_huge_hub(folder / "hub", HUGE_NBYTES, N_TINY), str(folder / "store")
    with two_nodes(memory_nbytes=WORKER_NBYTES) as cluster:
        report = run(cluster.environment, hub, store, "--full-tasks")
    workers = {name: stage["memory"] for name, stage in report["stages"].items()}
    assert workers["scan"] > 0
    assert max(workers.values()) < WORKER_NBYTES
    assert report["driver_memory"] < DRIVER_NBYTES

    started = time.monotonic()
    opened = open_store(store)
    for repo in list_repos(opened):
        restore_repo(opened, repo.repo, folder / "restored" / repo.repo)
    assert digests(folder / "restored") == digests(hub)
    peaks = {name: f"{nbytes / 1e6:.0f} MB" for name, nbytes in workers.items() if nbytes}
    seconds = {name: round(stage["seconds"], 1) for name, stage in report["stages"].items()}
    tell(
        f"ingest {report['seconds']:.1f} s, restore and compare {time.monotonic() - started:.1f} s; "
        f"stages {seconds}; peak of workers {peaks}, driver {report['driver_memory'] / 1e6:.0f} MB"
    )
