"""One S3 server, one cluster and one hub for all tests; what an undisturbed job makes of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.chaos_hub import write_family_hub, write_seed_hub
from support.chaos_runs import check_store, content, run, seed
from support.hubs import file_hashes
from support.seaweed import Seaweed, seaweed
from support.stores import upload
from support.two_nodes import TwoNodes, two_nodes
from tstore.catalog import open_store
from tstore.restore.describe import list_repos
from tstore.restore.files import restore_repo


@pytest.fixture(scope="session")
def server() -> Iterator[Seaweed]:
    """A server that tests may kill, if they start it again."""
    with seaweed() as server, pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("AWS_", "RAY_"))]:
            patch.delenv(name)
        for name, value in server.environment.items():
            patch.setenv(name, value)
        yield server


@pytest.fixture(scope="session")
def cluster(server: Seaweed) -> Iterator[TwoNodes]:
    """Two nodes that know the server."""
    with two_nodes() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def seed_hub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_seed_hub(tmp_path_factory.mktemp("seed") / "hub")


@pytest.fixture(scope="session")
def local_hub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_family_hub(tmp_path_factory.mktemp("families") / "hub")


@pytest.fixture(scope="session")
def hub(server: Seaweed, local_hub: Path) -> str:
    """The hub on the server."""
    return upload(local_hub, server.uri("hub"))


@pytest.fixture
def store(server: Seaweed, seed_hub: Path) -> str:
    """A store on the server that holds the seed."""
    return seed(seed_hub, server.uri())


@pytest.fixture(scope="session")
def undisturbed(
    server: Seaweed,
    cluster: TwoNodes,
    hub: str,
    local_hub: Path,
    seed_hub: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Any]:
    """Content of a store whose job met nothing; what comes out of it is the hub."""
    store = seed(seed_hub, server.uri())
    report = run(cluster.environment, hub, store)
    assert report["run"]
    assert (
        min(
            stage["shards"]
            for name, stage in report["stages"].items()
            if name in ("scan", "encode")
        )
        >= 24
    )
    restored = tmp_path_factory.mktemp("restored")
    opened = open_store(store)
    for repo in list_repos(opened):
        restore_repo(opened, repo.repo, restored / repo.repo)
    assert file_hashes(restored) == file_hashes(local_hub) | file_hashes(seed_hub)
    found = content(store)
    check_store(store, found)
    return found


@pytest.fixture
def tell(
    request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> Callable[[str], None]:
    """Print what was measured, whatever pytest does with the rest."""

    def tell(line: str) -> None:
        with capsys.disabled():
            print(f"\n    {request.node.name}: {line}")

    return tell
