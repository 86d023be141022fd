"""From unique tensors to plan rows: who is a base, who is a delta of whom, with which codec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from tstore.plan.resized import kin_shapes
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
            stored = [given.stored[key]] if key in given.stored else []
            found = _choose([given.new[key]], stored, given, planner)
            deltas.add({name: of for name, of in found.items() if name not in given.bases_in_use})
        for kin in kin_shapes([*planned, *given.stored]):
            deltas.add(_plan_resized(kin, given, deltas, planner))
    return _rows(given, deltas)


def group_problem(
    new: Sequence[SketchGroup],
    stored: Sequence[SketchGroup],
    predictor: TensorPred,
    settings: PlanSettings,
    sketch: SketchSettings,
) -> Problem:
    """The choice of bases among tensors of one dtype, with costs from sketches.

    Parameters
    ----------
    new : sequence of SketchGroup
        New tensors: one group, or kin (see `kin_shapes`).
    stored : sequence of SketchGroup
        Those of the same shapes that are stored whole, whatever is chosen.
    predictor : TensorPred
        For this dtype and ``settings.delta_codec``.
    settings : PlanSettings
    sketch : SketchSettings
    """
    held = [*stored, *new]
    costs = SketchCosts(
        sketches=np.concatenate([group.sketches for group in held]),
        layout=SketchLayout.of(held[0].dtype, sketch),
        nbytes=np.repeat([group.nbytes for group in held], [len(group.ids) for group in held]),
        predictor=predictor,
    )
    return Problem(
        names=tuple(name for group in held for name in group.ids),
        n_stored=sum(len(group.ids) for group in stored),
        standalone=np.concatenate([group.standalone for group in new]),
        costs=costs,
        min_gain=settings.min_gain,
    )


def _choose(
    new: Sequence[SketchGroup],
    stored: Sequence[SketchGroup],
    given: PlanInput,
    planner: Planner,
) -> dict[str, tuple[str, float]]:
    """Base and predicted ratio of each delta."""
    predictor = given.predictors[new[0].dtype]
    problem = group_problem(new, stored, predictor, given.settings, given.sketch)
    assignment = planner(problem)
    check(problem, assignment)
    return {
        problem.names[problem.n_stored + member]: (problem.names[base], float(ratio))
        for member, (base, ratio) in enumerate(zip(assignment.base, assignment.ratio, strict=True))
        if base >= 0
    }


def _plan_resized(
    kin: Sequence[GroupKey], given: PlanInput, deltas: _Deltas, planner: Planner
) -> dict[str, tuple[str, float]]:
    """Deltas of lone tensors, stored whole for no other's sake, among shapes that are kin."""
    fixed = deltas.bases | given.bases_in_use
    groups = [given.new[key] for key in kin if key in given.new]
    lone = [without(group, deltas.of.keys() | fixed) for group in groups]
    lone = [group for group in lone if group.ids]
    if not lone:
        return {}
    whole = [given.stored[key] for key in kin if key in given.stored]
    whole += [group.take(np.flatnonzero([name in fixed for name in group.ids])) for group in groups]
    return _choose(lone, [group for group in whole if group.ids], given, planner)


def without(group: SketchGroup, names: AbstractSet[str]) -> SketchGroup:
    """Leave out the tensors called `names`."""
    return group.take(np.flatnonzero([name not in names for name in group.ids]))


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
