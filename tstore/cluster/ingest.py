"""The ingest pipeline: list, scan, deduplicate, fit, plan, encode, commit."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from rich.console import Console

from tstore.catalog import Store, lease
from tstore.catalog.schema import REJECTS
from tstore.catalog.store import open_or_create, open_store
from tstore.cluster.committing import (
    commit_run,
    count_run,
    make_run_rows,
    packed_nbytes,
    run_tables,
    store_predictors,
)
from tstore.cluster.encoding import HubIndex, encode_all
from tstore.cluster.fanout import Stage, StageReport, peak_memory_nbytes
from tstore.cluster.job import Job, JobOptions
from tstore.cluster.opening import hold_store, job_workspace, open_catalog
from tstore.cluster.planning import plan_all
from tstore.cluster.session import ray_session
from tstore.errors import EmptyHubError, HubLayoutError, StoreNotFoundError
from tstore.hub.overlap import hub_overlaps
from tstore.hub.snapshot import Snapshot, list_hub
from tstore.plan.dedup import Accepted, accept, load_scanned
from tstore.plan.pending import Pending, carry_rejected, changes_nothing, find_pending
from tstore.plan.staged import stage_fingerprints
from tstore.predict.models import load_regression
from tstore.settings import PlanSettings, SketchSettings
from tstore.sketch.scan import plan_scan, rows_of_lost, scan_shard


@dataclass(frozen=True, kw_only=True)
class IngestOptions(JobOptions):
    """What to ingest, and how.

    Attributes
    ----------
    hub : str
        Location.
    include, exclude : tuple of str
        Patterns; see `tstore.hub.snapshot.list_hub`.
    """

    hub: str
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def ingest_intent(self, hub_root: str) -> dict[str, Any]:
        """See `JobOptions.intent`."""
        patterns = {"include": list(self.include), "exclude": list(self.exclude)}
        return self.intent("ingest", hub=hub_root, **patterns)


@dataclass
class IngestReport:
    """What a run did.

    Attributes
    ----------
    run_id : str or None
        The committed run; None for a dry run or when nothing was new.
    counts : dict of str to int
        Totals in bytes and numbers; what ``--json`` prints.
    stages : dict of str to StageReport
        In the order in which they ran.
    rejects : pyarrow.Table
        Rows ``rejects`` of the run.
    driver_memory_nbytes : int
        Peak resident memory of the driver.
    """

    run_id: str | None
    counts: dict[str, int]
    stages: dict[str, StageReport]
    rejects: pa.Table
    driver_memory_nbytes: int


def ingest(options: IngestOptions, console: Console) -> IngestReport:
    """Take a hub into a store in one run.

    Raises
    ------
    TStoreError
        Nothing was committed; the same command goes on where this one stopped.
    """
    _check_hub(options, list_hub(options.hub, include=options.include, exclude=options.exclude))
    with (
        _opened(options, console) as (store, writer),
        open_catalog(store, console) as (_, connection),
    ):
        # Listed again with the lease held: what was seen before a wait may be long gone.
        snapshot = list_hub(options.hub, include=options.include, exclude=options.exclude)
        console.print(_listed(snapshot), highlight=False)
        pending = find_pending(snapshot, connection)
        if pending.empty:
            return _report(None, _no_counts(pending.rejects), {}, pending.rejects)
        intent = options.ingest_intent(snapshot.root)
        with job_workspace(store, None if options.dry_run else intent, console) as workspace:
            job = Job(options, store, connection, workspace, console)
            with ExitStack() as stack:
                with job.on_driver("start"):
                    threading.Thread(target=load_regression).start()
                    stack.enter_context(ray_session(partial(warm_up, options.plan)))
                return _run(job, pending, writer, intent)


@contextmanager
def _opened(
    options: IngestOptions, console: Console
) -> Iterator[tuple[Store, lease.WriterLease | None]]:
    """The store, and the writer lease unless this is a dry run; that needs no store at all."""
    if not options.dry_run:
        store = open_or_create(options.store, SketchSettings())
        with hold_store(store, f"ingest of {options.hub}", options.wait_s, console) as writer:
            yield store, writer
        return
    try:
        store = open_store(options.store)
    except StoreNotFoundError:
        with tempfile.TemporaryDirectory(prefix="tstore-") as folder:
            yield open_or_create(folder, SketchSettings()), None
    else:
        yield store, None


def warm_up(plan: PlanSettings) -> None:
    """In a worker: load what the stages of nearly every hub need."""
    import tstore.encode.stage  # noqa: F401
    from tstore.cluster.warm import warm_tasks

    codecs = [codec for codec in (plan.delta_codec, plan.standalone_codec) if codec is not None]
    for dtype in ("BF16", "F32"):
        warm_tasks(dtype, codecs)


def _check_hub(options: IngestOptions, snapshot: Snapshot) -> None:
    """Refuse what can only be a mistake, before anything is made."""
    if not snapshot.files and not snapshot.rejects:
        patterns = ", ".join((*options.include, *(f"not {p}" for p in options.exclude)))
        raise EmptyHubError(
            f"expected files in {options.hub}, found none"
            + (f" that match {patterns}" if patterns else "")
        )
    if hub_overlaps(snapshot.root, options.store):
        raise HubLayoutError(
            f"expected hub and store apart from one another, found hub {snapshot.root} and store "
            f"{options.store}; choose another place for the store"
        )


def _listed(snapshot: Snapshot) -> str:
    repos = len({file.repo for file in snapshot.files})
    nbytes = sum(file.source.size for file in snapshot.files)
    return f"hub: {repos:,} repositories, {len(snapshot.files):,} files, {nbytes / 1e6:,.1f} MB"


def _run(
    job: Job, pending: Pending, writer: lease.WriterLease | None, intent: dict[str, Any]
) -> IngestReport:
    scanned = _scan(job, pending)
    with job.on_driver("dedup"):
        accepted = accept(job.connection, pending.occurrences, [])
        placed = stage_fingerprints(job.connection, job.workspace, scanned, job.store.sketch)
    index = HubIndex(job, (source for source, _ in pending.sources))
    planned = plan_all(job, placed, index.locate)
    if writer is None:
        rejects = _rejects(pending, accepted)
        return _report(None, count_run(job, accepted, rejects), job.stages, rejects)
    bad_sources = encode_all(job, index)
    with job.on_driver("commit"):
        accepted = accept(job.connection, pending.occurrences, bad_sources)
        rejects = _rejects(pending, accepted)
        pending = carry_rejected(job.connection, pending, rejects)
        make_run_rows(job, pending, accepted)
        counts = count_run(job, accepted, rejects)
        if not pending.refs_moved and changes_nothing(job.connection, rejects):
            job.workspace.clear()
            return _report(None, counts, job.stages, rejects)
        tables = run_tables(job, pending, accepted, planned, placed)
        store_predictors(job, writer, planned.predictors)
        counts["bytes_stored"] = packed_nbytes(job)
        run_id = commit_run(job, writer, "ingest", intent, tables, counts)
    return _report(run_id, counts, job.stages, rejects)


def _scan(job: Job, pending: Pending) -> list[str]:
    """Stage 1; its rows become tables of the job's connection. Keys of its shards."""
    sketch, tasks = job.store.sketch, job.options.tasks
    shards = plan_scan(pending.sources, sketch, tasks)
    nbytes = sum(shard.nbytes for shard in shards)
    stage = Stage("scan", scan_shard, rows_of_lost)
    shard_keys = job.fan_out(stage, shards, nbytes, sketch, tasks)
    load_scanned(job.connection, job.workspace, shard_keys)
    return shard_keys


def _rejects(pending: Pending, accepted: Accepted) -> pa.Table:
    rejects = accepted.rejects.to_arrow_table().cast(REJECTS)
    return pa.concat_tables([pending.rejects, rejects])


_NOTHING = ("bytes_in", "bytes_after_dedup", "bytes_stored", "bytes_catalog", "files")


def _no_counts(rejects: pa.Table) -> dict[str, int]:
    """Totals when nothing was new."""
    counts = dict.fromkeys((*_NOTHING, "files_rejected", "tensors", "tensors_unique"), 0)
    return counts | {"files_rejected": rejects.num_rows}


def _report(
    run_id: str | None, counts: dict[str, int], stages: dict[str, StageReport], rejects: pa.Table
) -> IngestReport:
    return IngestReport(run_id, counts, stages, rejects, peak_memory_nbytes())
