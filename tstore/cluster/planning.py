"""Plan step of a job: measure pairs of this hub, fit TensorPred, run FlexSplit."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from tstore.catalog import keys
from tstore.catalog.schema import PAIRS, PLANS
from tstore.catalog.stored import find_stored
from tstore.cluster.fanout import Stage
from tstore.cluster.job import Job
from tstore.errors import ObjectNotFoundError
from tstore.plan.placed import PlacedGroups, batched
from tstore.plan.rows import write_plans
from tstore.plan.shards import SHARD_ROWS, PlanSetup, plan_shard, plan_shards
from tstore.plan.stored import place_stored
from tstore.predict.drift import drifted_pairs
from tstore.predict.fitting import fit_pairs
from tstore.predict.measure import (
    Readable,
    measure_shard,
    plan_measurements,
    rows_of_lost,
)
from tstore.predict.pairs import MAX_MEMBERS, Pair, choose_pairs
from tstore.predict.tensorpred import TensorPred
from tstore.sketch.groups import GroupKey, SketchGroup
from tstore.sketch.layout import SketchLayout

FEW_SKETCHES = 2048
"""Up to so many sketches the driver plans itself: tasks would take longer to start. So it does with
sketches that no task could read."""

Locate: TypeAlias = Callable[[Iterable[str]], Mapping[str, Readable]]
"""Where the bytes of these tensors lie."""


@dataclass(frozen=True)
class Planned:
    """What a plan rests on; the plan itself is the temporary table ``planned``.

    Attributes
    ----------
    pairs : pyarrow.Table
        Rows ``pairs`` that this run adds.
    predictors : dict of str to TensorPred
        By dtype.
    """

    pairs: pa.Table
    predictors: dict[str, TensorPred]


def plan_all(job: Job, new: PlacedGroups, locate: Locate) -> Planned:
    """Plan the new unique extents.

    The job's connection gets the table ``planned``: the columns of ``plans``, and arrival.

    Parameters
    ----------
    job : Job
    new : PlacedGroups
        `tstore.plan.staged.stage_fingerprints`.
    locate : callable
        Where the bytes of new tensors lie.
    """
    stored = place_stored(job.connection, job.store.catalog(), new.groups, job.store.sketch)
    pairs, predictors = PAIRS.empty_table(), dict[str, TensorPred]()
    if (codec := job.options.plan.delta_codec) is not None:
        pairs, predictors = _predictors(job, new, stored, codec, locate)
    plan_new(job, new, stored, predictors, _bases_in_use(job))
    return Planned(pairs, predictors)


def plan_again(job: Job, stored: PlacedGroups, codec: str) -> Planned:
    """Plan tensors that the store holds as if they were new; the same table ``planned``.

    Parameters
    ----------
    job : Job
        Its connection has the table ``described`` of them.
    stored : PlacedGroups
    codec : str
        Of deltas.
    """
    none = PlacedGroups(stored.parts, {}, {})

    locate = partial(find_stored, job.connection, job.store.objects.uri)
    pairs, predictors = _predictors(job, stored, none, codec, locate)
    plan_new(job, stored, none, predictors, _bases_of_others(job))
    return Planned(pairs, predictors)


def plan_new(
    job: Job,
    new: PlacedGroups,
    stored: PlacedGroups,
    predictors: dict[str, TensorPred],
    in_use: Mapping[GroupKey, set[str]],
) -> None:
    """Choose bases and deltas with these predictors, and make the table ``planned``.

    New tensors that are `in_use` stay without a base: stored deltas need them.
    """
    setup = PlanSetup(new.parts, stored.parts, predictors, job.options.plan, job.store.sketch)
    shards = plan_shards(new, stored, in_use, setup, job.options.tasks)
    few = sum(unit.n_sketches for shard in shards for unit in shard.units) <= FEW_SKETCHES
    only_here = new.parts.uri == job.workspace.uri and not job.workspace.shared
    choices: ds.Dataset | pa.Table
    if few or only_here:
        with job.on_driver("plan"):
            tables = [plan_shard(shard, setup)["plans"] for shard in shards]
            choices = pa.concat_tables([PLANS.empty_table(), *tables])
    else:
        nbytes = sum(shard.nbytes for shard in shards)
        shard_keys = job.fan_out(Stage("plan", plan_shard), shards, nbytes, setup)
        choices = job.workspace.rows("plan", "plans", shard_keys)
    write_plans(job.connection, choices, job.options.plan)


def candidate_groups(
    new: PlacedGroups, stored: PlacedGroups, dtype: str
) -> Iterator[tuple[SketchGroup, SketchGroup | None]]:
    """Some tensors of each group of a dtype, new and stored, for `choose_pairs`; read once."""
    keys = [key for key in new.groups if key[0] == dtype]
    for batch in batched(keys, lambda key: min(new.groups[key].rows.size, MAX_MEMBERS), SHARD_ROWS):
        found = []
        for placed in (new, stored):
            groups = [placed.groups[key].some(MAX_MEMBERS) for key in batch if key in placed.groups]
            found.append({(g.dtype, g.shape): g for g in placed.parts.read(groups)})
        for key in batch:
            yield found[0][key], found[1].get(key)


def _predictors(
    job: Job,
    new: PlacedGroups,
    stored: PlacedGroups,
    codec: str,
    locate: Locate,
) -> tuple[pa.Table, dict[str, TensorPred]]:
    """New pairs, and a predictor for each dtype with sketches.

    A predictor is fitted again when pairs were added: because there were too few, or because
    the deltas of the last run came out otherwise than it had said.
    """
    query = f"SELECT {', '.join(PAIRS.names)} FROM pairs WHERE codec = $codec"
    known = job.connection.sql(query, params={"codec": codec}).to_arrow_table().cast(PAIRS)
    fitted = {dtype: _stored_predictor(job, dtype, codec) for dtype, _ in new.groups}
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
            dtype: fit_pairs(rows, dtype, codec, job.store.sketch)
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
    job: Job,
    new: PlacedGroups,
    stored: PlacedGroups,
    known: pa.Table,
    locate: Locate,
) -> pa.Table:
    """Measure pairs at distances of which too little is known."""
    chosen: list[Pair] = []
    with job.on_driver("choose"):
        for dtype in sorted({dtype for dtype, _ in new.groups}):
            distances = known.filter(pc.equal(known["dtype"], dtype))["distance"].to_numpy()
            groups = candidate_groups(new, stored, dtype)
            wanted = job.options.plan.pairs_per_model
            chosen += choose_pairs(groups, job.store.sketch, distances, wanted)
    uri = job.store.objects.uri
    names = {name for pair in chosen for name in (pair.target_id, pair.base_id)}
    bases = find_stored(job.connection, uri, (pair.base_id for pair in chosen))
    places: dict[str, Readable] = {**bases, **locate(names - bases.keys())}
    shards = plan_measurements(chosen, places, job.options.plan, job.options.tasks)
    nbytes = sum(shard.nbytes for shard in shards)
    stage = Stage("measure", measure_shard, rows_of_lost)
    shard_keys = job.fan_out(stage, shards, nbytes, job.options.plan)
    rows = job.workspace.rows("measure", "pairs", shard_keys).to_table(columns=PAIRS.names)
    return rows.cast(PAIRS)


def _bases_in_use(job: Job) -> dict[GroupKey, set[str]]:
    """New tensors that are bases of earlier runs: their pack was lost; they must stay bases."""
    return _by_group(job, "sketched", "FROM current_blobs")


def _bases_of_others(job: Job) -> dict[GroupKey, set[str]]:
    """Bases of deltas that are not planned again, but may be wanted again: those of removed
    revisions can be taken back, those in lost packs restored from a backup."""
    return _by_group(job, "described", "FROM current_blobs ANTI JOIN described USING (tensor_id)")


def _by_group(job: Job, planned: str, deltas: str) -> dict[GroupKey, set[str]]:
    """Tensors of the table `planned` that are bases of blobs of this query."""
    rows = job.connection.sql(
        f"SELECT dtype, shape, tensor_id FROM {planned}"
        f" WHERE tensor_id IN (SELECT base_id FROM ({deltas}) WHERE base_id IS NOT NULL)"
    )
    found: dict[GroupKey, set[str]] = {}
    for dtype, shape, tensor_id in rows.fetchall():
        found.setdefault((dtype, tuple(shape)), set()).add(tensor_id)
    return found
