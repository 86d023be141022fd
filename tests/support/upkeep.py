"""Removing repositories and collecting garbage: what the tests of both do to a store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from support.hubs import file_hashes
from support.inline import ingest_inline, stop_at
from support.stores import restore_all
from tstore.catalog import lease, open_store
from tstore.catalog.removal import Removal, remove, take_back
from tstore.cluster import gc as gc_module
from tstore.objects import open_objects
from tstore.restore.verify import verify
from tstore.settings import KIB, TaskSettings

SMALL = TaskSettings(scan_nbytes=200 * KIB, encode_nbytes=60 * KIB)
"""The small hub in several packs, so that some may go."""
WEEK = timedelta(days=7)


def packs(store: Path) -> set[str]:
    """Names of all packs."""
    return {path.stem for path in (store / "packs").rglob("*.safetensors")}


@contextmanager
def writer(store: Path | str) -> Iterator[lease.WriterLease]:
    """The lease of a store, for the length of the block."""
    objects = open_objects(str(store))
    with lease.hold(objects, "test", wait_s=0.0, on_wait=lambda line: None) as held:
        yield held


def rm(store: Path | str, repo: str, revision: str | None = None) -> Removal:
    """Remove a repository, or one revision of it."""
    with writer(store) as held:
        return remove(open_store(str(store)), held, repo, revision)


def undelete(store: Path | str, repo: str) -> Removal:
    """Take a repository back."""
    with writer(store) as held:
        return take_back(open_store(str(store)), held, repo, None)


def check(store: Path, hub: Path, out: Path, gone: tuple[str, ...] = ()) -> None:
    """The store is sound and gives back all of the hub but some repositories."""
    assert verify(open_store(str(store)), read_data=True).problems == []
    expected = {
        path: sha256
        for path, sha256 in file_hashes(hub).items()
        if not path.startswith(tuple(f"{repo}/" for repo in gone))
    }
    assert file_hashes(restore_all(store, out)) == expected


def interrupted_ingest(hub: Path, store: Path, encoded: int, **options: Any) -> None:
    """An ingest that ends when so many encode shards are finished."""
    with pytest.raises(KeyboardInterrupt):
        ingest_inline(hub, store, before_shard=stop_at("encode", encoded), **options)


@contextmanager
def later(age: timedelta) -> Iterator[None]:
    """The clock of gc, moved on."""
    now = gc_module.utc_now() + age
    with mock.patch.object(gc_module, "utc_now", return_value=now):
        yield


def earlier(age: timedelta) -> AbstractContextManager[None]:
    """The clock of gc, moved back."""
    return later(-age)
