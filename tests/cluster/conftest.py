"""Stores of several packs, so that some may go."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from support.hubs import write_small_hub
from support.inline import ingest_inline
from support.upkeep import SMALL


@pytest.fixture(scope="session")
def store_of_packs(small_hub: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that holds `small_hub`; not to be changed."""
    store = tmp_path_factory.mktemp("packs") / "store"
    ingest_inline(small_hub, store, tasks=SMALL)
    return store


@pytest.fixture
def store(store_of_packs: Path, tmp_path: Path) -> Path:
    """A store of `small_hub` to be changed."""
    return shutil.copytree(store_of_packs, tmp_path / "store")


@pytest.fixture
def changing(tmp_path: Path) -> tuple[Path, Path]:
    """A hub to be changed, and a store of it."""
    hub, store = write_small_hub(tmp_path / "hub"), tmp_path / "store"
    ingest_inline(hub, store, tasks=SMALL)
    return hub, store
