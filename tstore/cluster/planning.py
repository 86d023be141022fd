"""Plan step of a job: measure pairs of this hub, fit TensorPred, run FlexSplit."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tstore.catalog import keys
from tstore.catalog.blobs import find_usable
from tstore.catalog.schema import PAIRS
from tstore.cluster.job import Job
from tstore.errors import ObjectNotFoundError
from tstore.hub.location import HubLocation
from tstore.plan.planner import PlanInput, make_plan
from tstore.plan.stored import StoredGroups
from tstore.predict.drift import drifted_pairs
from tstore.predict.measure import Readable, StoredLocation, measure_shard, plan_measurements
from tstore.predict.pairs import Pair, choose_pairs
from tstore.predict.tensorpred import Measured, TensorPred, fit
from tstore.sketch.groups import Groups, TableGroups
from tstore.sketch.layout import SketchLayout


@dataclass(frozen=True)
class Planned:
    """A plan and what it rests on.

    Attributes
    ----------
    plans : pyarrow.Table
        Rows ``plans``, in order of arrival.
    pairs : pyarrow.Table
        Rows ``pairs`` that this run adds.
    predictors : dict of str to TensorPred
        By dtype.
    """

    plans: pa.Table
    pairs: pa.Table
    predictors: dict[str, TensorPred]


def plan_all(job: Job, described: pa.Table, locate: Callable[[str], HubLocation]) -> Planned:
    """Plan the new unique extents.

    Parameters
    ----------
    job : Job
    described : pyarrow.Table
        `tstore.plan.dedup.describe_unique`.
    locate : callable
        Where the bytes of a new tensor lie.
    """
    codec = job.options.plan.delta_codec
    new = TableGroups(described)
    stored = StoredGroups(job.connection, new)
    pairs, predictors = PAIRS.empty_table(), dict[str, TensorPred]()
    if codec is not None:
        pairs, predictors = _predictors(job, new, stored, codec, locate)
    with job.on_driver("plan"):
        plans = make_plan(
            PlanInput(
                unique=described,
                new=new,
                stored=stored,
                predictors=predictors,
                bases_in_use=_bases_in_use(job),
                settings=job.options.plan,
                sketch=job.store.sketch,
            )
        )
    return Planned(plans, pairs, predictors)


def _predictors(
    job: Job, new: Groups, stored: Groups, codec: str, locate: Callable[[str], HubLocation]
) -> tuple[pa.Table, dict[str, TensorPred]]:
    """New pairs, and a predictor for each dtype with sketches.

    A predictor is fitted again when pairs were added: because there were too few, or because
    the deltas of the last run came out otherwise than it had said.
    """
    query = f"SELECT {', '.join(PAIRS.names)} FROM pairs WHERE codec = $codec"
    known = job.connection.sql(query, params={"codec": codec}).to_arrow_table().cast(PAIRS)
    fitted = {dtype: _stored_predictor(job, dtype, codec) for dtype, _ in new}
    added = [_measure(job, new, stored, known, locate)]
    for dtype, predictor in fitted.items():
        if predictor is not None and predictor.report is not None:
            limits = job.store.sketch, job.options.plan.pairs_per_model
            added.append(drifted_pairs(job.connection, dtype, codec, predictor.report, *limits))
    pairs = pa.concat_tables(added)
    with job.on_driver("fit"):
        rows = pa.concat_tables([known, pairs])
        fresh = set(pairs["dtype"].to_pylist())
        predictors = {
            dtype: _fit(job, rows, dtype, codec)
            if predictor is None or dtype in fresh
            else predictor
            for dtype, predictor in fitted.items()
        }
    return pairs, predictors


def _stored_predictor(job: Job, dtype: str, codec: str) -> TensorPred | None:
    """What the last run fitted; None if there is nothing usable: the pairs tell it again."""
    try:
        text = job.store.objects.get(keys.tensorpred(dtype, codec))
        found = TensorPred.from_json(json.loads(text))
    except (ObjectNotFoundError, ValueError):
        return None
    shares = SketchLayout.of(dtype, job.store.sketch).shares
    return found if (found.dtype, found.codec, found.shares) == (dtype, codec, shares) else None


def _measure(
    job: Job, new: Groups, stored: Groups, known: pa.Table, locate: Callable[[str], HubLocation]
) -> pa.Table:
    """Measure pairs at distances of which too little is known."""
    chosen: list[Pair] = []
    for dtype in sorted({dtype for dtype, _ in new}):
        groups = ((new[key], stored.get(key)) for key in new if key[0] == dtype)
        distances = known.filter(pc.equal(known["dtype"], dtype))["distance"].to_numpy()
        wanted = job.options.plan.pairs_per_model
        chosen += choose_pairs(groups, job.store.sketch, distances, wanted)
    bases = find_usable(job.connection, (pair.base_id for pair in chosen))

    def find(tensor_id: str) -> Readable:
        if tensor_id in bases:
            return StoredLocation(job.store.objects.uri, bases[tensor_id])
        return locate(tensor_id)

    shards = plan_measurements(chosen, find, job.options.plan, job.options.tasks)
    shard_keys = job.fan_out("measure", measure_shard, shards, job.options.plan)
    rows = job.workspace.rows("measure", "pairs", shard_keys).to_table(columns=PAIRS.names)
    return rows.cast(PAIRS)


def _fit(job: Job, pairs: pa.Table, dtype: str, codec: str) -> TensorPred:
    rows = pairs.filter(pc.equal(pairs["dtype"], dtype))
    rows = rows.sort_by([("target_id", "ascending"), ("base_id", "ascending")])
    layout = SketchLayout.of(dtype, job.store.sketch)
    flat = pc.list_flatten(rows["group_distance"]).to_numpy()
    measured = Measured(
        p=np.ascontiguousarray(flat.reshape(-1, layout.n_groups).T),
        ratio=rows["ratio"].to_numpy(),
        nbytes=rows["nbytes"].to_numpy(),
    )
    return fit(dtype, codec, layout.shares, measured)


def _bases_in_use(job: Job) -> frozenset[str]:
    """Bases of earlier runs. One whose pack was lost comes again, and must stay a base."""
    rows = job.connection.sql("SELECT DISTINCT base_id FROM current_blobs WHERE base_id NOT NULL")
    return frozenset(base_id for (base_id,) in rows.fetchall())
