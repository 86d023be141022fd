"""Commit step of a job: what the run adds to each table, its totals, and the marker.

Rows come out of DuckDB sorted, a part at a time: the driver holds one part, not the run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from tstore.catalog import keys
from tstore.catalog.catalog import sorted_rows
from tstore.catalog.lease import WriterLease
from tstore.catalog.publish import publish_run
from tstore.catalog.savings import summarise
from tstore.catalog.schema import PLANS, REJECTS, TABLES
from tstore.cluster.job import Job
from tstore.cluster.planning import Planned
from tstore.ids import OPAQUE
from tstore.plan.dedup import Accepted
from tstore.plan.pending import Pending
from tstore.plan.placed import PlacedGroups
from tstore.plan.staged import kept_fingerprints
from tstore.predict.tensorpred import TensorPred

Tables = dict[str, pa.Table | Iterator[pa.Table]]


def make_run_rows(job: Job, pending: Pending, accepted: Accepted) -> None:
    """Make the views ``run_files``, ``run_tensors``, ``run_plans`` and ``run_blobs`` of the job's
    connection: what the run adds to those tables."""
    connection = job.connection
    connection.register("carried_files", pending.carried_files)
    connection.register("carried_tensors", pending.carried_tensors)
    for name, rows in (("files", accepted.files), ("tensors", accepted.tensors)):
        connection.execute(f"CREATE OR REPLACE TEMP TABLE taken_{name} AS {rows.sql_query()}")
        connection.execute(
            f"CREATE OR REPLACE TEMP VIEW run_{name} AS"
            f" FROM taken_{name} UNION ALL BY NAME FROM carried_{name}"
        )
    connection.execute("CREATE OR REPLACE TEMP VIEW run_blobs AS FROM encoded")
    connection.execute(
        f"CREATE OR REPLACE TEMP VIEW run_plans AS SELECT {', '.join(PLANS.names)}"
        " FROM planned SEMI JOIN encoded USING (tensor_id)"
    )


def run_tables(
    job: Job, pending: Pending, accepted: Accepted, planned: Planned, placed: PlacedGroups
) -> Tables:
    """Rows of the run by table, for `write_tables`; call `make_run_rows` first."""
    connection = job.connection
    rejects = accepted.rejects.to_arrow_table().cast(REJECTS)
    return {
        **{
            name: sorted_rows(name, connection.table(f"run_{name}").select(*TABLES[name].names))
            for name in ("files", "tensors", "plans", "blobs")
        },
        "fingerprints": kept_fingerprints(connection, placed.parts, "encoded"),
        "pairs": planned.pairs,
        "rejects": pa.concat_tables([pending.new_rejects, rejects]),
        "savings": summarise(connection),
        # Plain SQL over the Parquet needs a file of each table, be it empty.
        **{name: TABLES[name].empty_table() for name in ("removals", "dropped_packs")},
    }


def store_predictors(job: Job, writer: WriterLease, predictors: Mapping[str, TensorPred]) -> None:
    """Keep what was fitted, for later runs."""
    writer.check()
    for dtype, predictor in predictors.items():
        text = json.dumps(predictor.to_json(), indent=1).encode()
        job.store.objects.put(keys.tensorpred(dtype, predictor.codec), [text])


def packed_nbytes(job: Job) -> int:
    """Size of the packs of the table ``encoded``."""
    packs = job.connection.sql("SELECT DISTINCT pack FROM encoded ORDER BY pack").fetchall()
    return sum(job.store.objects.head(keys.pack(pack)).nbytes for (pack,) in packs)


def commit_run(
    job: Job,
    writer: WriterLease,
    kind: str,
    told: dict[str, Any],
    tables: Tables,
    counts: dict[str, Any],
    *,
    merged: Sequence[str] = (),
) -> str:
    """Publish the run of a job with its stages, and clear its workspace; see `publish_run`."""
    totals = {**counts, "stages": {name: asdict(stage) for name, stage in job.stages.items()}}
    run_id = publish_run(
        job.store.objects,
        writer,
        kind,
        told,
        tables,
        totals,
        workspace=job.workspace.token,
        merged=merged,
    )
    counts["bytes_catalog"] = totals["bytes_catalog"]
    job.workspace.clear()
    return run_id


_COUNTS = f"""
SELECT (SELECT coalesce(sum(nbytes), 0) FROM taken) AS bytes_in,
       (SELECT coalesce(sum(nbytes), 0) FROM new_unique) AS bytes_after_dedup,
       (SELECT round(coalesce(sum(predicted_ratio * nbytes), 0)) FROM planned) AS bytes_stored,
       0 AS bytes_catalog,
       (SELECT count(*) FROM taken) AS files,
       $files_rejected AS files_rejected,
       (SELECT count(*) FROM named WHERE coalesce(part, 0) = 0) AS tensors,
       (SELECT count(*) FROM new_unique WHERE dtype <> '{OPAQUE}') AS tensors_unique
"""


def count_run(job: Job, accepted: Accepted, rejects: pa.Table) -> dict[str, int]:
    """Totals known before anything is stored; ``bytes_stored`` is then the prediction."""
    query = (
        f"WITH taken AS ({accepted.files.sql_query()}), named AS ({accepted.tensors.sql_query()})"
        + _COUNTS
    )
    counts = job.connection.sql(query, params={"files_rejected": rejects.num_rows})
    ((*values,),) = counts.fetchall()
    return {name: int(value) for name, value in zip(counts.columns, values, strict=True)}
