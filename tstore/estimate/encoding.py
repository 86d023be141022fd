"""Planning the sampled blocks as an ingest would, and really encoding them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import tstore_codecs
from tstore.catalog.blobs import resized
from tstore.catalog.schema import PAIRS, PLANS
from tstore.encode.stage import WORTH_TRYING_ALONE
from tstore.errors import SourceRejectedError
from tstore.estimate.blocks import Block, Sampled
from tstore.ids import OPAQUE
from tstore.plan.planner import PlanInput, plan_groups
from tstore.predict.fitting import fit_pairs
from tstore.predict.measure import measure_shard, plan_measurements
from tstore.predict.pairs import choose_pairs
from tstore.settings import PlanSettings, SketchSettings, TaskSettings
from tstore.sketch.groups import GroupKey, SketchGroup


@dataclass(frozen=True)
class Encoded:
    """What a block takes.

    Attributes
    ----------
    ratio : float
        Stored/raw.
    is_delta : bool
    """

    ratio: float
    is_delta: bool


def encode_blocks(
    sampled: Sampled, plan: PlanSettings, sketch: SketchSettings
) -> dict[str, Encoded]:
    """Choose bases among the sampled blocks and encode all of them, by id.

    A block whose source changed since it was read is left out.
    """
    bases = _bases(sampled, plan, sketch)
    encoded = {}
    for name, block in sampled.blocks.items():
        try:
            base = sampled.blocks[bases[name]].read() if name in bases else None
            encoded[name] = _encode(block, base, plan)
        except SourceRejectedError:
            sampled.unreadable.add(block.location.source.source)
    return encoded


def _bases(sampled: Sampled, plan: PlanSettings, sketch: SketchSettings) -> dict[str, str]:
    """Base of each block that is to be a delta."""
    codec, groups = plan.delta_codec, sampled.groups()
    if codec is None:
        return {}
    dtypes = sorted({dtype for dtype, _ in groups})
    pairs = _measure(sampled, groups, dtypes, plan, sketch)
    given = PlanInput(
        new=groups,
        stored={},
        predictors={dtype: fit_pairs(pairs, dtype, codec, sketch) for dtype in dtypes},
        bases_in_use=frozenset(),
        settings=plan,
        sketch=sketch,
    )
    rows = plan_groups(given).select(["tensor_id", "base_id"]) if groups else PLANS.empty_table()
    found = zip(rows["tensor_id"].to_pylist(), rows["base_id"].to_pylist(), strict=True)
    return {name: base for name, base in found if base is not None}


def _measure(
    sampled: Sampled,
    groups: dict[GroupKey, SketchGroup],
    dtypes: list[str],
    plan: PlanSettings,
    sketch: SketchSettings,
) -> pa.Table:
    """Rows ``pairs`` of each dtype, spread over the distances of its blocks."""
    none_known: NDArray[np.float64] = np.empty(0)
    places = {name: block.location for name, block in sampled.blocks.items()}
    tables = [PAIRS.empty_table()]
    for dtype in dtypes:
        ours = ((group, None) for key, group in groups.items() if key[0] == dtype)
        chosen = choose_pairs(ours, sketch, none_known, plan.pairs_per_model)
        shards = plan_measurements(chosen, places, plan, TaskSettings())
        tables += [measure_shard(shard, plan)["pairs"] for shard in shards]
    return pa.concat_tables(tables)


def _encode(block: Block, base: NDArray[np.uint8] | None, plan: PlanSettings) -> Encoded:
    data = block.read()

    def nbytes(codec: str, base: NDArray[np.uint8] | None) -> int:
        blob = tstore_codecs.encode(
            data, dtype=block.dtype, codec=codec, shape=block.shape, base=base
        )
        return len(blob)

    if block.dtype == OPAQUE:
        return Encoded(nbytes(plan.opaque_codec, None) / data.nbytes, False)
    if base is not None and plan.delta_codec is not None:
        delta = nbytes(plan.delta_codec, resized(base, data.nbytes))
        if delta <= WORTH_TRYING_ALONE * block.standalone * data.nbytes:
            return Encoded(delta / data.nbytes, True)
        alone = nbytes(plan.standalone_codec, None)
        return Encoded(min(delta, alone) / data.nbytes, delta < alone)
    return Encoded(nbytes(plan.standalone_codec, None) / data.nbytes, False)
