"""From unique tensors to plan rows: who is a base, who is a delta of whom, with which codec."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet

import numpy as np
import pyarrow as pa

from tstore.catalog.schema import PLANS
from tstore.ids import OPAQUE
from tstore.plan.flexsplit import Group, assign, check
from tstore.predict.tensorpred import TensorPred
from tstore.settings import PlanSettings, SketchSettings
from tstore.sketch.groups import SketchGroup, group_by_shape

StoredBases = Callable[[str, tuple[int, ...]], SketchGroup | None]
"""Tensors of a dtype and shape that the store already holds standalone."""


def make_plan(
    unique: pa.Table,
    stored_bases: StoredBases,
    predictors: Mapping[str, TensorPred],
    settings: PlanSettings,
    sketch: SketchSettings,
    bases_in_use: AbstractSet[str] = frozenset(),
) -> pa.Table:
    """Plan every unique tensor; a pure function of its arguments.

    Parameters
    ----------
    unique : pyarrow.Table
        tensor_id, dtype, shape, nbytes, sketch, standalone_ratio in order of arrival.
    stored_bases : callable
        Bases of earlier runs, free to use.
    predictors : mapping of str to TensorPred
        By dtype, for ``settings.delta_codec``; a dtype without one gets no deltas.
    settings : PlanSettings
    sketch : SketchSettings
    bases_in_use : set of str
        Tensors that stored deltas need; they are never made deltas themselves.

    Returns
    -------
    pyarrow.Table
        Rows `PLANS` in the order of `unique`.
    """
    base_of: dict[str, str] = {}
    ratio_of: dict[str, float] = {}
    for group in group_by_shape(unique):
        if group.dtype in predictors:
            stored = stored_bases(group.dtype, group.shape)
            predictor = predictors[group.dtype]
            for member, base, ratio in _assign(group, stored, predictor, settings, sketch):
                if member not in bases_in_use:
                    base_of[member], ratio_of[member] = base, ratio
    bases = set(base_of.values())
    columns = ("tensor_id", "dtype", "nbytes", "standalone_ratio")
    rows = []
    for row in unique.select(columns).to_pylist():
        base_id = base_of.get(row["tensor_id"])
        row["predicted_ratio"] = ratio_of.get(row["tensor_id"], row["standalone_ratio"])
        row["base_id"] = base_id
        row["role"], row["codec"] = _role(
            row["dtype"], row["tensor_id"] in bases, base_id, settings
        )
        rows.append(row)
    return pa.Table.from_pylist(rows, PLANS)


def _assign(
    group: SketchGroup,
    stored: SketchGroup | None,
    predictor: TensorPred,
    settings: PlanSettings,
    sketch: SketchSettings,
) -> list[tuple[str, str, float]]:
    """(delta, base, predicted ratio) of a group."""
    stored_ids = stored.ids if stored is not None else ()
    none = np.empty((0, group.sketches.shape[1]), np.int32)
    problem = Group(
        sketches=group.sketches,
        standalone=group.standalone,
        base_sketches=stored.sketches if stored is not None else none,
        nbytes=group.nbytes,
        depth=sketch.depth,
    )
    assignment = assign(problem, predictor.ratio, settings.min_gain)
    check(problem, assignment, predictor.ratio, settings.min_gain)
    names = (*stored_ids, *group.ids)
    return [
        (group.ids[member], names[base], float(ratio))
        for member, (base, ratio) in enumerate(zip(assignment.base, assignment.ratio, strict=True))
        if base >= 0
    ]


def _role(dtype: str, is_base: bool, base: str | None, settings: PlanSettings) -> tuple[str, str]:
    if dtype == OPAQUE:
        return "opaque", settings.opaque_codec
    if base is not None and settings.delta_codec is not None:
        return "delta", settings.delta_codec
    return "base" if is_base else "alone", settings.standalone_codec
