"""The replan job: choose bases again for what is stored, re-encode what pays, flip in one commit.

Nothing is changed in place: new packs, new rows in ``blobs``, one commit. Readers that opened the
catalog before go on reading the old packs, which gc removes after its grace period.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import duckdb
import pyarrow as pa
from rich.console import Console

from tstore.catalog import Catalog, RunMarker, Store, lease
from tstore.catalog.blobs import BLOB_COLUMNS, BlobLocation
from tstore.catalog.catalog import NEED
from tstore.catalog.merge import merged_with, plan_merge
from tstore.catalog.schema import BLOBS
from tstore.catalog.store import open_store
from tstore.catalog.stored import StoredTensor
from tstore.cluster.committing import commit_run, packed_nbytes, store_predictors
from tstore.cluster.encoding import encode_setup, forget_lost_packs
from tstore.cluster.fanout import Stage, StageReport, peak_memory_nbytes
from tstore.cluster.ingest import warm_up
from tstore.cluster.job import Job, JobOptions
from tstore.cluster.opening import hold_store, job_workspace, open_catalog
from tstore.cluster.planning import Planned, plan_again
from tstore.cluster.resettle import check_depth, replan_tables, settle
from tstore.cluster.session import ray_session
from tstore.encode.shards import EncodeItem, plan_shards
from tstore.encode.stage import encode_shard, rows_of_lost
from tstore.plan.moves import MOVES, choose_moves
from tstore.plan.scope import READABLE, describe_scope, replan_scope
from tstore.plan.stored import place_stored

KIND = "replan"
_BATCH_ROWS = 16 * 1024
_Blob: TypeAlias = dict[str, Any] | None


@dataclass(frozen=True, kw_only=True)
class ReplanOptions(JobOptions):
    """What to plan again, and how much may be rewritten.

    Attributes
    ----------
    max_rewrite_nbytes : int or None
        Bytes of packs to write at most.
    min_gain : float
        A set of tensors that belong together is rewritten when that saves at least this share of
        what it takes.
    everything : bool
        Also what no run has touched since the last replan.
    """

    max_rewrite_nbytes: int | None = None
    min_gain: float = 0.02
    everything: bool = False

    def replan_intent(self) -> dict[str, Any]:
        """See `JobOptions.intent`."""
        return self.intent(
            KIND,
            max_rewrite_nbytes=self.max_rewrite_nbytes,
            min_gain=self.min_gain,
            everything=self.everything,
        )


@dataclass
class ReplanReport:
    """What a replan did, or with ``dry_run`` would do.

    Attributes
    ----------
    run_id : str or None
        The committed run.
    counts : dict of str to int
        Totals. Bytes: ``before`` of all blobs of what was looked at, ``promised`` and ``after`` of the same
        after the moves, as predicted and as it came out; ``to_read``, ``to_write`` and ``raw`` of what is
        re-encoded, ``written`` in packs. ``core_seconds`` are an estimate of the time of cores.
    stages : dict of str to StageReport
    driver_memory_nbytes : int
    """

    run_id: str | None
    counts: dict[str, int]
    stages: dict[str, StageReport] = field(default_factory=dict)
    driver_memory_nbytes: int = 0


def replan(options: ReplanOptions, console: Console) -> ReplanReport:
    """Plan a store again, and rewrite what pays.

    Raises
    ------
    TStoreError
        Nothing was committed; the same command goes on where this one stopped.
    """
    store = open_store(options.store)
    if options.dry_run:
        return _replan(options, store, console, None)
    with hold_store(store, f"replan of {options.store}", options.wait_s, console) as writer:
        return _replan(options, store, console, writer)


def _replan(
    options: ReplanOptions, store: Store, console: Console, writer: lease.WriterLease | None
) -> ReplanReport:
    intent, codec = options.replan_intent(), options.plan.delta_codec
    with open_catalog(store, console) as (catalog, connection):
        catalog.check(NEED)  # a damaged footer would hide rows without an error
        wanted = replan_scope(connection, catalog.runs, everything=options.everything)
        if not wanted or codec is None:
            return ReplanReport(None, {})
        with (
            job_workspace(store, None if writer is None else intent, console) as workspace,
            ray_session(partial(warm_up, options.plan)),
        ):
            job = Job(options, store, connection, workspace, console)
            with job.on_driver("place"):
                placed = place_stored(connection, catalog, wanted, store.sketch, READABLE)
                describe_scope(connection)
            planned = plan_again(job, placed, codec)
            with job.on_driver("choose moves"):
                counts = _choose(connection, options)
                counts["core_seconds"] = _core_seconds(catalog.runs, counts["bytes_raw"])
            if writer is None:
                return ReplanReport(None, counts, job.stages, peak_memory_nbytes())
            return _rewrite(job, catalog, planned, counts, writer, intent)


_FIND_MOVES = """
CREATE OR REPLACE TEMP TABLE changes AS
SELECT p.tensor_id, p.base_id, b.base_id AS old_base_id, b.nbytes AS old_nbytes,
       CAST(round(p.predicted_ratio * p.nbytes) AS BIGINT) AS new_nbytes
FROM planned p JOIN usable_blobs b USING (tensor_id)
WHERE p.base_id IS DISTINCT FROM b.base_id
UNION ALL
SELECT tensor_id, NULL, NULL, nbytes, 0 FROM usable_blobs
WHERE tensor_id NOT IN (FROM live)
  AND tensor_id IN (SELECT b.base_id FROM planned p JOIN usable_blobs b USING (tensor_id))
ORDER BY tensor_id
"""
"""A base that no file needs any more is gone when its deltas have moved."""

_COUNTS = """
SELECT (SELECT count(*) FROM planned) AS tensors,
       (SELECT count(*) FROM changes) AS moves_found,
       count(*) AS moves,
       (SELECT coalesce(sum(b.nbytes), 0) FROM planned p JOIN usable_blobs b USING (tensor_id))
           AS bytes_before,
       coalesce(sum(old_nbytes), 0) - coalesce(sum(new_nbytes), 0) AS bytes_gained,
       coalesce(sum(new_nbytes), 0) AS bytes_to_write,
       coalesce(sum(old_nbytes), 0) AS bytes_to_read,
       (SELECT coalesce(sum(nbytes), 0) FROM planned SEMI JOIN moves USING (tensor_id)) AS bytes_raw
FROM moves
"""


def _choose(connection: duckdb.DuckDBPyConnection, options: ReplanOptions) -> dict[str, int]:
    """Make the table ``moves`` of what is to be moved, with the number of its set; the totals."""
    connection.execute(_FIND_MOVES)
    changes = connection.table("changes").to_arrow_table().cast(MOVES)
    choice = choose_moves(changes, options.min_gain, options.max_rewrite_nbytes)
    chosen = changes.append_column("set", pa.array(choice.sets)).filter(pa.array(choice.chosen))
    connection.register("chosen_moves", chosen)
    connection.execute("CREATE OR REPLACE TEMP TABLE moves AS FROM chosen_moves")
    counts = connection.sql(_COUNTS)
    (values,) = counts.fetchall()
    found = {name: int(value) for name, value in zip(counts.columns, values, strict=True)}
    found["bytes_promised"] = found["bytes_before"] - found.pop("bytes_gained")
    return found | {"sets_left": choice.n_left}


def _core_seconds(runs: Sequence[RunMarker], nbytes: int) -> int:
    """What encoding so many raw bytes takes, as the last run that did measured it; 0 if none did."""
    for run in reversed(runs):
        stage = run.counts.get("stages", {}).get("encode")
        if stage and stage["task_seconds"] and stage["nbytes"]:
            per_byte: float = stage["task_seconds"] / stage["nbytes"]
            return math.ceil(nbytes * per_byte)
    return 0


_ITEMS = f"""
WITH stored AS (
    SELECT b.tensor_id, b AS blob, base
    FROM (SELECT {BLOB_COLUMNS} FROM usable_blobs) b
    LEFT JOIN (SELECT {BLOB_COLUMNS} FROM usable_blobs) base ON base.tensor_id = b.base_id
)
SELECT p.dtype, p.codec, target.blob, target.base, new.blob AS new_blob, new.base AS new_base,
       CAST(p.standalone_ratio * p.nbytes AS BIGINT) AS alone_nbytes
FROM moves m JOIN planned p USING (tensor_id)
JOIN stored target ON target.tensor_id = m.tensor_id
LEFT JOIN stored new ON new.tensor_id = m.base_id
ORDER BY coalesce(m.base_id, m.tensor_id), m.base_id IS NOT NULL, m.tensor_id
"""
"""Cluster by cluster, a new base before its deltas."""


def _items(connection: duckdb.DuckDBPyConnection, uri: str) -> Iterator[EncodeItem]:
    for batch in connection.sql(_ITEMS).to_arrow_reader(_BATCH_ROWS):
        for row in batch.to_pylist():
            target = _stored(uri, row["blob"], row["base"])
            assert target is not None
            base = _stored(uri, row["new_blob"], row["new_base"])
            yield EncodeItem(target, row["dtype"], row["codec"], base, row["alone_nbytes"])


def _stored(uri: str, blob: _Blob, base: _Blob = None) -> StoredTensor | None:
    """What an outer join found, which is nothing or nulls where there is none."""
    if blob is None or blob["tensor_id"] is None:
        return None
    return StoredTensor(uri, BlobLocation(**blob), _stored(uri, base))


def _rewrite(
    job: Job,
    catalog: Catalog,
    planned: Planned,
    counts: dict[str, int],
    writer: lease.WriterLease,
    intent: dict[str, Any],
) -> ReplanReport:
    """Re-encode the moves, keep what really pays, commit."""
    connection, setup = job.connection, encode_setup(job)
    forget_lost_packs(job, "encode")
    shards = plan_shards(_items(connection, setup.store_uri), setup, job.options.tasks)
    work = Stage("encode", encode_shard, rows_of_lost)
    keys = job.fan_out(work, shards, counts["bytes_raw"], setup)
    connection.register("encoded_now", job.workspace.rows("encode", "blobs", keys))
    columns = ", ".join(f'"{name}"' for name in BLOBS.names)
    with job.on_driver("commit"):
        connection.execute(
            f"CREATE OR REPLACE TEMP TABLE encoded AS SELECT {columns} FROM encoded_now"
        )
        counts["bytes_written"] = packed_nbytes(job)
        counts |= settle(connection)
        check_depth(connection)
        merge = plan_merge(catalog)
        tables = merged_with(replan_tables(connection, planned.pairs), merge.rows(catalog))
        store_predictors(job, writer, planned.predictors)
        run_id = commit_run(job, writer, KIND, intent, tables, counts, merged=merge.keys)
    return ReplanReport(run_id, counts, job.stages, peak_memory_nbytes())
