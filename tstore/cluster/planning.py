"""Plan step of a job: measure pairs of this hub, fit TensorPred, run FlexSplit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tstore.catalog.schema import PAIRS
from tstore.cluster.job import Job
from tstore.hub.location import HubLocation
from tstore.plan.planner import make_plan
from tstore.predict.measure import Pair, choose_pairs, measure_shard, plan_measurements
from tstore.predict.tensorpred import MIN_PAIRS, TensorPred, fit, prior
from tstore.sketch.groups import SketchGroup, group_by_shape


@dataclass(frozen=True)
class Planned:
    """A plan and what it rests on.

    Attributes
    ----------
    plans : pyarrow.Table
        Rows ``plans``, in order of arrival.
    pairs : pyarrow.Table
        Rows ``pairs`` that this run measured.
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
    pairs, predictors = PAIRS.empty_table(), {}
    if codec is not None:
        query = f"SELECT {', '.join(PAIRS.names)} FROM pairs WHERE codec = $codec"
        known = job.connection.sql(query, params={"codec": codec}).to_arrow_table().cast(PAIRS)
        pairs = _measure(job, described, known, locate)
        with job.on_driver("fit"):
            predictors = _fit(described, pa.concat_tables([known, pairs]), codec)
    with job.on_driver("plan"):
        plans = make_plan(
            described,
            _stored_bases(job, described),
            predictors,
            job.options.plan,
            job.store.sketch,
            _bases_in_use(job),
        )
    return Planned(plans, pairs, predictors)


def _measure(
    job: Job, described: pa.Table, known: pa.Table, locate: Callable[[str], HubLocation]
) -> pa.Table:
    """Measure pairs for every dtype that has too few of them."""
    wanted = job.options.plan.pairs_per_model
    by_dtype: dict[str, list[SketchGroup]] = {}
    for group in group_by_shape(described):
        by_dtype.setdefault(group.dtype, []).append(group)
    chosen: list[Pair] = []
    for dtype, groups in sorted(by_dtype.items()):
        missing = wanted - known.filter(pc.equal(known["dtype"], dtype)).num_rows
        if missing > 0:
            chosen += choose_pairs(groups, job.store.sketch.depth, missing)
    shards = plan_measurements(chosen, locate, job.options.plan, job.options.tasks)
    keys = job.fan_out("measure", measure_shard, shards, job.options.plan)
    rows = job.workspace.rows("measure", "pairs", keys).to_table(columns=PAIRS.names)
    return rows.cast(PAIRS)


def _fit(described: pa.Table, pairs: pa.Table, codec: str) -> dict[str, TensorPred]:
    """A predictor for each dtype with sketches."""
    sketched = described.filter(pc.is_valid(described["sketch"]))
    predictors = {}
    for dtype in sorted(set(sketched["dtype"].to_pylist())):
        rows = pairs.filter(pc.equal(pairs["dtype"], dtype))
        if rows.num_rows < MIN_PAIRS:
            predictors[dtype] = prior(dtype, codec)
        else:
            distances, ratios = (rows[name].to_numpy() for name in ("distance", "ratio"))
            predictors[dtype] = fit(dtype, codec, distances, ratios)
    return predictors


def _bases_in_use(job: Job) -> frozenset[str]:
    """Bases of earlier runs. One whose pack was lost comes again, and must stay a base."""
    rows = job.connection.sql("SELECT DISTINCT base_id FROM current_blobs WHERE base_id NOT NULL")
    return frozenset(base_id for (base_id,) in rows.fetchall())


def _stored_bases(
    job: Job, described: pa.Table
) -> Callable[[str, tuple[int, ...]], SketchGroup | None]:
    """Tensors that earlier runs stored standalone, of the dtypes and shapes at hand."""
    wanted = described.filter(pc.is_valid(described["sketch"])).select(["dtype", "shape"])
    job.connection.register("wanted_groups", wanted)
    rows = job.connection.sql(
        "SELECT f.tensor_id, f.dtype, f.shape, f.nbytes, f.sketch, f.standalone_ratio"
        " FROM fingerprints f JOIN usable_blobs b USING (tensor_id)"
        " WHERE b.base_id IS NULL AND f.sketch IS NOT NULL AND (f.dtype, f.shape) IN"
        " (SELECT (dtype, shape) FROM wanted_groups) ORDER BY f.run, f.tensor_id"
    ).to_arrow_table()
    groups: Mapping[tuple[str, tuple[int, ...]], SketchGroup] = {
        (group.dtype, group.shape): group for group in group_by_shape(rows)
    }
    return lambda dtype, shape: groups.get((dtype, shape))
