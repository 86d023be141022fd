"""From groups of new tensors to plan rows: who is a base, who is a delta of whom."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from tstore.catalog.schema import PLANS
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
    """What the plan of some groups rests on.

    Attributes
    ----------
    new : Groups
        New tensors of dtypes with a predictor, each group in order of arrival.
    stored : Groups
        Tensors that the store holds whole, free to use as bases; each group by name.
    predictors : mapping of str to TensorPred
        By dtype, for ``settings.delta_codec``.
    bases_in_use : set of str
        Tensors that stored deltas need; they are never made deltas themselves.
    settings : PlanSettings
    sketch : SketchSettings
    """

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


def plan_groups(given: PlanInput, planner: Planner = assign) -> pa.Table:
    """Plan the new tensors of some groups; a pure function of its arguments.

    Groups are planned one by one. Then tensors that found no base among their own shape look for
    one among shapes with more or fewer rows (`kin_shapes`). So groups of other dtypes or rows can
    be planned apart.

    Parameters
    ----------
    given : PlanInput
    planner : callable
        How the bases of a group are chosen.

    Returns
    -------
    pyarrow.Table
        Rows `PLANS` of the deltas and their new bases; all others are stored alone.
    """
    deltas = _Deltas()
    with one_blas_thread():
        for key, group in given.new.items():
            stored = [given.stored[key]] if key in given.stored else []
            found = _choose([group], stored, given, planner)
            deltas.add({name: of for name, of in found.items() if name not in given.bases_in_use})
        for kin in kin_shapes([*given.new, *given.stored]):
            deltas.add(_plan_resized(kin, given, deltas, planner))
    rows = [row for group in given.new.values() for row in _rows(group, deltas, given.settings)]
    return pa.Table.from_pylist(rows, PLANS)


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
    sketches = [group.sketches for group in held]
    costs = SketchCosts(
        sketches=np.concatenate(sketches) if len(sketches) > 1 else sketches[0],
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
    settled = deltas.of.keys() | fixed
    groups = [given.new[key] for key in kin if key in given.new]
    lone = [_some(group, lambda name: name not in settled) for group in groups]
    if not any(group.ids for group in lone):
        return {}
    whole = [given.stored[key] for key in kin if key in given.stored]
    whole += [_some(group, fixed.__contains__) for group in groups]
    lone, whole = ([group for group in part if group.ids] for part in (lone, whole))
    return _choose(lone, whole, given, planner)


def _some(group: SketchGroup, is_wanted: Callable[[str], bool]) -> SketchGroup:
    """Only the tensors with such names."""
    return group.take(np.flatnonzero([is_wanted(name) for name in group.ids]))


def _rows(group: SketchGroup, deltas: _Deltas, settings: PlanSettings) -> Iterator[dict[str, Any]]:
    """Plan rows of the deltas and bases of a group."""
    for name, standalone in zip(group.ids, group.standalone.tolist(), strict=True):
        base, ratio = deltas.of.get(name, (None, standalone))
        if base is None and name not in deltas.bases:
            continue
        yield {
            "tensor_id": name,
            "dtype": group.dtype,
            "nbytes": group.nbytes,
            "role": "base" if base is None else "delta",
            "base_id": base,
            "codec": settings.standalone_codec if base is None else settings.delta_codec,
            "predicted_ratio": ratio,
            "standalone_ratio": standalone,
        }
