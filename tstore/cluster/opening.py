"""What a job opens before it does anything: the writer lease, the catalog, a place for results."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import duckdb
from rich.console import Console

from tstore.catalog import Catalog, Store, lease
from tstore.catalog.workspace import (
    Workspace,
    clear_committed,
    open_workspace,
    remove_uncommitted,
)
from tstore.settings import ABANDONED_AFTER_S


@contextmanager
def hold_store(
    store: Store, purpose: str, wait_s: float, console: Console
) -> Iterator[lease.WriterLease]:
    """The writer lease of a store, and what dead writers left removed.

    Parameters
    ----------
    store : Store
    purpose : str
        Shown to whoever waits, e.g. ``ingest of /hub``.
    wait_s : float
        How long to wait for another writer.
    console : Console
        Told of a wait.
    """
    with lease.hold(
        store.objects,
        purpose,
        wait_s=wait_s,
        on_wait=lambda line: console.print(line, highlight=False),
    ) as writer:
        clear_committed(store.objects)
        remove_uncommitted(store.objects, ABANDONED_AFTER_S)
        store.objects.remove_abandoned(ABANDONED_AFTER_S)
        yield writer


@contextmanager
def open_catalog(
    store: Store, console: Console
) -> Iterator[tuple[Catalog, duckdb.DuckDBPyConnection]]:
    """The committed runs; what lies in packs that are gone counts as not stored."""
    catalog = store.catalog()
    lost = catalog.lost_packs()
    if lost:
        console.print(
            f"{len(lost)} packs are missing or cut short; what they held is stored again where "
            "a hub that is ingested has it",
            style="yellow",
            highlight=False,
        )
    with catalog.connect(lost_packs=lost) as connection:
        yield catalog, connection


@contextmanager
def job_workspace(
    store: Store, intent: dict[str, Any] | None, console: Console
) -> Iterator[Workspace]:
    """Staged results: in the store, so that a restart finds them; without an intent, on the disk of
    this machine, since a dry run writes nothing to a store."""
    if intent is None:
        with tempfile.TemporaryDirectory(prefix="tstore-") as folder:
            yield Workspace(folder, "dry-run", "", shared=False)
        return
    workspace, resumed = open_workspace(store.objects, intent)
    if resumed:
        console.print("going on with the work of an interrupted job", highlight=False)
    yield workspace
