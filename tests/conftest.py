"""Settings and stores that all tests share."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import settings

from support.hubs import write_small_hub
from support.seaweed import s3, s3_server  # noqa: F401  fixtures

# Compilation of a kernel inside an example is not slowness of the example.
settings.register_profile("tstore", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("tstore")


@pytest.fixture(scope="session")
def small_hub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The hub of `write_small_hub`; not to be changed."""
    return write_small_hub(tmp_path_factory.mktemp("small") / "hub")


@pytest.fixture(scope="session")
def small_store(small_hub: Path) -> Path:
    """A store that holds `small_hub`; not to be changed."""
    from support.inline import ingest_inline  # imports ray, which few tests need

    store = small_hub.parent / "store"
    ingest_inline(small_hub, store)
    return store


@pytest.fixture
def own_store(small_store: Path, tmp_path: Path) -> Path:
    """A copy of `small_store` to be damaged."""
    return shutil.copytree(small_store, tmp_path / "own-store")
