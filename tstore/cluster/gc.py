"""The gc job: mark what nothing needs, give it up after a grace period, delete it.

The order makes it safe to stop at any moment: copies of what packs with little of use still hold,
then the marks, then the run that gives packs up, and only then the deletions, which the next gc
finishes. All of it with the writer lease held, so that no job that writes is under way.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pyarrow as pa
from rich.console import Console

from tstore.catalog import Catalog, Store, keys, lease
from tstore.catalog.blobs import BLOB_COLUMNS, BlobLocation
from tstore.catalog.garbage import Garbage, find_garbage, utc_now, write_marks
from tstore.catalog.merge import merged_with, plan_merge
from tstore.catalog.schema import BLOBS, DROPPED_PACKS
from tstore.catalog.store import open_store
from tstore.catalog.workspace import clear_older
from tstore.cluster.committing import commit_run
from tstore.cluster.encoding import encode_setup, forget_lost_packs
from tstore.cluster.fanout import Stage, StageReport
from tstore.cluster.job import Job, JobOptions
from tstore.cluster.opening import hold_store, job_workspace
from tstore.cluster.session import ray_session
from tstore.encode.copying import BlobToCopy, copy_shard, copy_shards

KIND = "gc"
_CHECK_EVERY = 100
"""Deletions between two looks at the lease."""


@dataclass(frozen=True, kw_only=True)
class GcOptions(JobOptions):
    """What to remove.

    Attributes
    ----------
    grace : timedelta
        How long nothing must have needed a pack before it is given up. Longer than any restore.
    compact_below : float
        Packs of which a smaller share than this is needed are copied and go as well.
    """

    grace: timedelta = timedelta(days=7)
    compact_below: float = 0.5

    def gc_intent(self) -> dict[str, Any]:
        """See `JobOptions.intent`."""
        settings = {"grace_s": self.grace.total_seconds(), "compact_below": self.compact_below}
        return self.intent(KIND, **settings)


@dataclass
class GcReport:
    """What a gc did, or with ``dry_run`` would do; numbers of objects and their bytes.

    Attributes
    ----------
    run_id : str or None
        The run that gave packs up, copied blobs or merged parts; None if there was nothing to say.
    counts : dict of str to int
        ``packs`` and ``live`` bytes in them; ``marked`` (nothing needs them), ``due`` (and so for the
        grace period: deleted), ``left_over`` (given up by an interrupted gc: deleted), ``sparse``
        (copied), ``stale`` (merged parts: deleted).
    """

    run_id: str | None
    counts: dict[str, int]
    stages: dict[str, StageReport] = field(default_factory=dict)


def gc(options: GcOptions, console: Console) -> GcReport:
    """Remove what nothing has needed for the grace period.

    Raises
    ------
    TStoreError
        Some of it may be left; the same command goes on where this one stopped.
    """
    store = open_store(options.store)
    if options.dry_run:
        catalog = store.catalog()
        with catalog.connect() as connection:
            garbage = find_garbage(connection, catalog, utc_now(), options.grace)
        return GcReport(None, _counts(garbage, options))
    with hold_store(store, f"gc of {options.store}", options.wait_s, console) as writer:
        return _collect(options, store, console, writer)


def _counts(garbage: Garbage, options: GcOptions) -> dict[str, int]:
    sparse = garbage.sparse(options.compact_below)
    sets: dict[str, list[int]] = {
        "packs": list(garbage.packs.values()),
        "marked": [garbage.packs[pack] for pack in garbage.marked],
        "due": list(garbage.due.values()),
        "left_over": list(garbage.left_over.values()),
        "sparse": [garbage.packs[pack] for pack in sparse],
        "stale": list(garbage.stale_parts.values()),
    }
    counts = {name: len(sizes) for name, sizes in sets.items()}
    counts |= {f"bytes_{name}": sum(sizes) for name, sizes in sets.items()}
    counts["bytes_live"] = sum(garbage.live_nbytes.values())
    counts["bytes_to_copy"] = sum(garbage.live_nbytes[pack] for pack in sparse)
    return counts


def _collect(
    options: GcOptions, store: Store, console: Console, writer: lease.WriterLease
) -> GcReport:
    now, intent = utc_now(), options.gc_intent()
    clear_older(store.objects, now - options.grace)
    catalog = store.catalog()
    with (
        catalog.connect() as connection,
        job_workspace(store, intent, console) as workspace,
    ):
        job = Job(options, store, connection, workspace, console)
        garbage = find_garbage(connection, catalog, now, options.grace)
        counts = _counts(garbage, options)
        copied = _copy(job, garbage.sparse(options.compact_below))
        reused = set(copied["pack"].to_pylist())
        write_marks(store.objects, {p: t for p, t in garbage.marked.items() if p not in reused})
        due = {pack: nbytes for pack, nbytes in garbage.due.items() if pack not in reused}
        run_id = _commit(job, catalog, copied, due, counts, writer, intent)
    _delete(store, [keys.pack(pack) for pack in (*due, *garbage.left_over)], writer)
    _delete(store, garbage.stale_parts, writer)
    return GcReport(run_id, counts, job.stages)


_SPARSE = f"""
SELECT {BLOB_COLUMNS}, dtype, codec FROM live_blobs
WHERE pack IN (SELECT unnest($packs::text[])) ORDER BY pack, "offset"
"""


def _copy(job: Job, sparse: list[str]) -> pa.Table:
    """Copy what is needed out of these packs; rows ``blobs``."""
    if not sparse:
        return BLOBS.empty_table()
    rows = job.connection.sql(_SPARSE, params={"packs": sparse}).fetchall()
    blobs = [BlobToCopy(BlobLocation(*row[:-2]), *row[-2:]) for row in rows]
    nbytes = sum(blob.location.nbytes for blob in blobs)
    setup = encode_setup(job)
    forget_lost_packs(job, "copy")
    with ray_session():
        shards = copy_shards(blobs, setup, job.options.tasks)
        done = job.fan_out(Stage("copy", copy_shard), shards, nbytes, setup)
    found = job.workspace.rows("copy", "blobs", done).to_table(columns=BLOBS.names)
    return found.cast(BLOBS)


def _commit(
    job: Job,
    catalog: Catalog,
    copied: pa.Table,
    due: dict[str, int],
    counts: dict[str, int],
    writer: lease.WriterLease,
    intent: dict[str, Any],
) -> str | None:
    """The run that says what moved and what is given up; none if there is nothing to say."""
    merge = plan_merge(catalog)
    if not (due or copied.num_rows or merge.parts):
        job.workspace.clear()
        return None
    dropped = [{"pack": pack, "nbytes": nbytes} for pack, nbytes in due.items()]
    own = {"blobs": copied, "dropped_packs": pa.Table.from_pylist(dropped, DROPPED_PACKS)}
    tables = merged_with(own, merge.rows(catalog))
    return commit_run(job, writer, KIND, intent, tables, counts, merged=merge.keys)


def _delete(store: Store, names: Iterable[str], writer: lease.WriterLease) -> None:
    for number, name in enumerate(names):
        if number % _CHECK_EVERY == 0:
            writer.check()
        store.objects.delete(name)
