"""From unique tensors to plan rows: who is a base, who is a delta of whom, with which codec."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from tstore.catalog.schema import PLANS
from tstore.ids import OPAQUE
from tstore.plan.check import check
from tstore.plan.costs import SketchCosts
from tstore.plan.flexsplit import assign
from tstore.plan.problem import Planner, Problem
from tstore.plan.resized import kin_shapes, resized_bases, without
from tstore.predict.tensorpred import TensorPred
from tstore.settings import PlanSettings, SketchSettings
from tstore.sketch.distances import one_blas_thread
from tstore.sketch.groups import GroupKey, Groups, SketchGroup
from tstore.sketch.layout import SketchLayout


@dataclass(frozen=True)
class PlanInput:
    """What a plan rests on.

    Attributes
    ----------
    unique : pyarrow.Table
        tensor_id, dtype, nbytes, standalone_ratio of the new extents, in order of arrival.
    new : Groups
        The sketched ones among them.
    stored : Groups
        Tensors that the store holds whole, free to use as bases.
    predictors : mapping of str to TensorPred
        By dtype, for ``settings.delta_codec``; a dtype without one gets no deltas.
    bases_in_use : set of str
        Tensors that stored deltas need; they are never made deltas themselves.
    settings : PlanSettings
    sketch : SketchSettings
    """

    unique: pa.Table
    new: Groups
    stored: Groups
    predictors: Mapping[str, TensorPred]
    bases_in_use: AbstractSet[str]
    settings: PlanSettings
    sketch: SketchSettings


@dataclass
class _Deltas:
    """Base and predicted ratio of each delta, and which tensors are bases."""

    of: dict[str, tuple[str, float]] = field(default_factory=dict)
    bases: set[str] = field(default_factory=set)

    def add(self, found: Mapping[str, tuple[str, float]]) -> None:
        self.of.update(found)
        self.bases.update(base for base, _ in found.values())


def make_plan(given: PlanInput, planner: Planner = assign) -> pa.Table:
    """Plan every new tensor; a pure function of its arguments.

    Groups are planned one after the other, so that memory is bounded by the largest. Then tensors
    that found no base among their own shape look for one among shapes with more or fewer rows.

    Parameters
    ----------
    given : PlanInput
    planner : callable
        How the bases of a group are chosen.

    Returns
    -------
    pyarrow.Table
        Rows `PLANS` in the order of ``given.unique``.
    """
    deltas = _Deltas()
    planned = [key for key in given.new if key[0] in given.predictors]
    with one_blas_thread():
        for key in planned:
            found = _plan_group(given.new[key], given.stored.get(key), given, planner)
            deltas.add({name: of for name, of in found.items() if name not in given.bases_in_use})
        for key in planned:
            deltas.add(_plan_resized(key, given, deltas))
    return _rows(given, deltas)


def group_problem(
    group: SketchGroup,
    stored: SketchGroup | None,
    predictor: TensorPred,
    settings: PlanSettings,
    sketch: SketchSettings,
) -> Problem:
    """The choice of bases in one group, with costs from sketches.

    Parameters
    ----------
    group : SketchGroup
        New tensors.
    stored : SketchGroup or None
        Those of the same dtype and shape that the store holds whole.
    predictor : TensorPred
        For this dtype and ``settings.delta_codec``.
    settings : PlanSettings
    sketch : SketchSettings
    """
    held = [group] if stored is None else [stored, group]
    costs = SketchCosts(
        sketches=np.concatenate([part.sketches for part in held]),
        layout=SketchLayout.of(group.dtype, sketch),
        nbytes=group.nbytes,
        predictor=predictor,
    )
    return Problem(
        names=tuple(name for part in held for name in part.ids),
        n_stored=0 if stored is None else len(stored.ids),
        standalone=group.standalone,
        costs=costs,
        min_gain=settings.min_gain,
    )


def _plan_group(
    group: SketchGroup, stored: SketchGroup | None, given: PlanInput, planner: Planner
) -> dict[str, tuple[str, float]]:
    """Base and predicted ratio of each delta of a group."""
    predictor = given.predictors[group.dtype]
    problem = group_problem(group, stored, predictor, given.settings, given.sketch)
    assignment = planner(problem)
    check(problem, assignment)
    return {
        problem.names[problem.n_stored + member]: (problem.names[base], float(ratio))
        for member, (base, ratio) in enumerate(zip(assignment.base, assignment.ratio, strict=True))
        if base >= 0
    }


def _plan_resized(key: GroupKey, given: PlanInput, deltas: _Deltas) -> dict[str, tuple[str, float]]:
    """Deltas of lone tensors of one shape against tensors with more or fewer rows."""
    kin = kin_shapes(key, [*given.new, *given.stored])
    if not kin:
        return {}
    lone = without(given.new[key], deltas.of.keys() | deltas.bases | given.bases_in_use)
    if not lone.ids:
        return {}
    whole = [given.stored[other] for other in kin if other in given.stored]
    whole += [without(given.new[other], deltas.of.keys()) for other in kin if other in given.new]
    return resized_bases(lone, whole, given.predictors[key[0]], given.settings, given.sketch)


def _rows(given: PlanInput, deltas: _Deltas) -> pa.Table:
    columns = ("tensor_id", "dtype", "nbytes", "standalone_ratio")
    rows = []
    for row in given.unique.select(columns).to_pylist():
        name = row["tensor_id"]
        base_id, predicted = deltas.of.get(name, (None, row["standalone_ratio"]))
        role, codec = _role(row["dtype"], name in deltas.bases, base_id, given.settings)
        row.update(base_id=base_id, predicted_ratio=predicted, role=role, codec=codec)
        rows.append(row)
    return pa.Table.from_pylist(rows, PLANS)


def _role(dtype: str, is_base: bool, base: str | None, settings: PlanSettings) -> tuple[str, str]:
    if dtype == OPAQUE:
        return "opaque", settings.opaque_codec
    if base is not None and settings.delta_codec is not None:
        return "delta", settings.delta_codec
    return "base" if is_base else "alone", settings.standalone_codec
