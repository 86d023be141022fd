"""The ingest pipeline: list, scan, deduplicate, fit, plan, encode, commit."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console

import tstore
from tstore.catalog import RunMarker, Store, keys, lease
from tstore.catalog.catalog import commit, write_tables
from tstore.catalog.runs import new_run_id, read_markers
from tstore.catalog.savings import summarise
from tstore.catalog.store import open_or_create, open_store
from tstore.catalog.workspace import (
    Workspace,
    clear_committed,
    open_workspace,
    remove_uncommitted,
)
from tstore.cluster.encoding import Encoded, HubIndex, encode_all
from tstore.cluster.fanout import StageReport, peak_memory_nbytes
from tstore.cluster.job import IngestOptions, Job
from tstore.cluster.planning import Planned, plan_all
from tstore.cluster.session import ray_session
from tstore.errors import EmptyHubError, HubLayoutError, StoreNotFoundError
from tstore.hub.snapshot import Snapshot, list_hub
from tstore.ids import OPAQUE
from tstore.plan.dedup import Accepted, accept, describe_unique
from tstore.plan.pending import Pending, carry_rejected, changes_nothing, find_pending
from tstore.settings import ABANDONED_AFTER_S, SketchSettings
from tstore.sketch.scan import plan_scan, scan_shard


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
    with _opened(options, console) as (store, writer), _catalog(store, console) as connection:
        # Listed again with the lease held: what was seen before a wait may be long gone.
        snapshot = list_hub(options.hub, include=options.include, exclude=options.exclude)
        console.print(_listed(snapshot), highlight=False)
        pending = find_pending(snapshot, connection)
        if pending.empty:
            return _report(None, _counts(pending, None, None), {}, pending.rejects)
        with _workspace(options, store, snapshot.root, console) as workspace, ray_session():
            job = Job(options, store, connection, workspace, console)
            return _run(job, pending, writer)


def _check_hub(options: IngestOptions, snapshot: Snapshot) -> None:
    """Refuse what can only be a mistake, before anything is made."""
    if not snapshot.files and not snapshot.rejects:
        patterns = ", ".join((*options.include, *(f"not {p}" for p in options.exclude)))
        raise EmptyHubError(
            f"expected files in {options.hub}, found none"
            + (f" that match {patterns}" if patterns else "")
        )
    store = os.path.realpath(options.store)
    if os.path.commonpath([store, snapshot.root]) in (store, snapshot.root):
        raise HubLayoutError(
            f"expected hub and store apart from one another, found hub {snapshot.root} and store "
            f"{store}; choose another place for the store"
        )


def _listed(snapshot: Snapshot) -> str:
    repos = len({file.repo for file in snapshot.files})
    nbytes = sum(file.source.size for file in snapshot.files)
    return f"hub: {repos:,} repositories, {len(snapshot.files):,} files, {nbytes / 1e6:,.1f} MB"


@contextmanager
def _catalog(store: Store, console: Console) -> Iterator[duckdb.DuckDBPyConnection]:
    """The committed runs; what lies in packs that are gone counts as not stored."""
    catalog = store.catalog()
    lost = catalog.lost_packs()
    if lost:
        console.print(
            f"{len(lost)} packs are missing or cut short; what they held is stored again where "
            "this hub has it",
            style="yellow",
            highlight=False,
        )
    with catalog.connect(lost_packs=lost) as connection:
        yield connection


@contextmanager
def _opened(
    options: IngestOptions, console: Console
) -> Iterator[tuple[Store, lease.WriterLease | None]]:
    """The store, and the writer lease unless this is a dry run."""
    if options.dry_run:
        try:
            store = open_store(options.store)
        except StoreNotFoundError:
            with tempfile.TemporaryDirectory(prefix="tstore-") as folder:
                yield open_or_create(folder, SketchSettings()), None
        else:
            yield store, None
        return
    store = open_or_create(options.store, SketchSettings())
    with lease.hold(
        store.objects,
        f"ingest of {options.hub}",
        wait_s=options.wait_s,
        on_wait=lambda line: console.print(line, highlight=False),
    ) as writer:
        clear_committed(store.objects)
        remove_uncommitted(store.objects, ABANDONED_AFTER_S)
        store.objects.remove_abandoned(ABANDONED_AFTER_S)
        yield store, writer


@contextmanager
def _workspace(
    options: IngestOptions, store: Store, hub_root: str, console: Console
) -> Iterator[Workspace]:
    """Staged results: in the store, so that a restart finds them; elsewhere for a dry run."""
    if options.dry_run:
        with tempfile.TemporaryDirectory(prefix="tstore-") as folder:
            yield Workspace(folder, "dry-run", "")
        return
    workspace, resumed = open_workspace(store.objects, options.intent(hub_root))
    if resumed:
        console.print("going on with the work of an interrupted job", highlight=False)
    yield workspace


def _run(job: Job, pending: Pending, writer: lease.WriterLease | None) -> IngestReport:
    _scan(job, pending)
    with job.on_driver("dedup"):
        accepted = accept(job.connection, pending.occurrences, [])
        described = describe_unique(job.connection)
    index = HubIndex(accepted.unique, (source for source, _ in pending.sources))
    planned = plan_all(job, described, index.locate)
    if writer is None:
        counts = _counts(pending, accepted, planned)
        return _report(None, counts, job.stages, _rejects(pending, accepted))
    encoded = encode_all(job, planned.plans, index)
    with job.on_driver("commit"):
        accepted = accept(job.connection, pending.occurrences, encoded.bad_sources)
        pending = carry_rejected(job.connection, pending, accepted.rejects)
        rejects = _rejects(pending, accepted)
        if not pending.refs_moved and changes_nothing(
            job.connection, _files(pending, accepted), rejects
        ):
            job.workspace.clear()
            return _report(None, _counts(pending, accepted, planned), job.stages, rejects)
        run_id, counts = _commit(job, pending, accepted, described, planned, encoded, writer)
    return _report(run_id, counts, job.stages, rejects)


def _scan(job: Job, pending: Pending) -> None:
    """Stage 1; its rows become tables of the job's connection."""
    sketch, tasks = job.store.sketch, job.options.tasks
    shards = plan_scan(pending.sources, sketch, tasks)
    shard_keys = job.fan_out("scan", scan_shard, shards, sketch, tasks)
    for name in ("sources", "extents"):
        rows = job.workspace.rows("scan", name, shard_keys)
        job.connection.register(f"scanned_{name}", rows)


def _commit(
    job: Job,
    pending: Pending,
    accepted: Accepted,
    described: pa.Table,
    planned: Planned,
    encoded: Encoded,
    writer: lease.WriterLease,
) -> tuple[str, dict[str, int]]:
    """Write the rows, then the marker; the run exists once the marker does."""
    objects = job.store.objects
    writer.check()
    run_id = new_run_id(max((marker.run_id for marker in read_markers(objects)), default=None))
    kept = pc.is_in(described["tensor_id"], encoded.blobs["tensor_id"])
    tensors = pc.not_equal(described["dtype"], OPAQUE)
    parts = write_tables(
        objects,
        run_id,
        {
            "files": _files(pending, accepted),
            "tensors": pa.concat_tables([accepted.tensors, pending.carried_tensors]),
            "fingerprints": described.filter(pc.and_(kept, tensors)),
            "pairs": planned.pairs,
            "plans": planned.plans.filter(
                pc.is_in(planned.plans["tensor_id"], encoded.blobs["tensor_id"])
            ),
            "blobs": encoded.blobs,
            "rejects": pa.concat_tables([pending.new_rejects, accepted.rejects]),
            "savings": summarise(accepted.files, planned.plans, encoded.blobs),
        },
    )
    for dtype, predictor in planned.predictors.items():
        text = json.dumps(predictor.to_json(), indent=1).encode()
        objects.put(keys.tensorpred(dtype, predictor.codec), [text])
    counts = _counts(pending, accepted, planned)
    packs = sorted(set(encoded.blobs["pack"].to_pylist()))
    counts["bytes_stored"] = sum(objects.head(keys.pack(pack)).nbytes for pack in packs)
    counts["bytes_catalog"] = sum(part.nbytes for rows in parts.values() for part in rows)
    marker = RunMarker(
        run_id=run_id,
        kind="ingest",
        tool_version=tstore.__version__,
        options=job.options.intent(job.options.hub),
        counts={**counts, "stages": {name: asdict(stage) for name, stage in job.stages.items()}},
        tables=parts,
        workspace=job.workspace.token,
    )
    writer.check()
    commit(objects, marker)
    job.workspace.clear()
    return run_id, counts


def _files(pending: Pending, accepted: Accepted) -> pa.Table:
    return pa.concat_tables([accepted.files, pending.carried_files])


def _rejects(pending: Pending, accepted: Accepted) -> pa.Table:
    return pa.concat_tables([pending.rejects, accepted.rejects])


def _counts(pending: Pending, accepted: Accepted | None, planned: Planned | None) -> dict[str, int]:
    """Totals known before anything is stored; ``bytes_stored`` is then the prediction."""
    if accepted is None or planned is None:
        names = ("bytes_in", "bytes_after_dedup", "bytes_stored", "bytes_catalog", "files")
        counts = dict.fromkeys((*names, "files_rejected", "tensors", "tensors_unique"), 0)
        return counts | {"files_rejected": pending.rejects.num_rows}
    plans = planned.plans
    predicted = pc.sum(pc.multiply(plans["predicted_ratio"], plans["nbytes"])).as_py() or 0
    return {
        "bytes_in": pc.sum(accepted.files["nbytes"]).as_py() or 0,
        "bytes_after_dedup": pc.sum(accepted.unique["nbytes"]).as_py() or 0,
        "bytes_stored": round(predicted),
        "bytes_catalog": 0,
        "files": accepted.files.num_rows,
        "files_rejected": _rejects(pending, accepted).num_rows,
        "tensors": accepted.tensors.num_rows,
        "tensors_unique": pc.sum(pc.not_equal(accepted.unique["dtype"], OPAQUE)).as_py() or 0,
    }


def _report(
    run_id: str | None, counts: dict[str, int], stages: dict[str, StageReport], rejects: pa.Table
) -> IngestReport:
    return IngestReport(run_id, counts, stages, rejects, peak_memory_nbytes())
