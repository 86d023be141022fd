"""What all experiments share: the hub, real sizes, fitted predictors, plans."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from benchmarks.planning.bits import BitDistances
from benchmarks.planning.hub import Hub
from benchmarks.planning.sizes import Sizes
from tstore.plan.planner import group_problem
from tstore.plan.problem import STANDALONE, Planner, Problem
from tstore.predict.pairs import Pair, choose_pairs
from tstore.predict.tensorpred import Measured, TensorPred, fit
from tstore.settings import PlanSettings
from tstore.sketch.groups import SketchGroup
from tstore.sketch.layout import SketchLayout

CODECS = ("tensorx", "fmpp", "ulprow")
"""The paper's two codecs, and the default."""

FLOATS = ("BF16", "F16", "F32")

Plan = Mapping[str, str | None]
"""Tensor id to the id of its base, None when stored whole."""


class Bench:
    """A hub to experiment on.

    Parameters
    ----------
    hub : Hub
    cache : Path
        Folder of everything that is slow to find out.

    Attributes
    ----------
    hub : Hub
    settings : PlanSettings
        The defaults of an ingest.
    sizes : Sizes
    distances : BitDistances
    """

    def __init__(self, hub: Hub, cache: Path) -> None:
        self.hub = hub
        self.settings = PlanSettings()
        self.sizes = Sizes(hub.tensors, cache)
        self.distances = BitDistances(hub, cache)
        self._predictors: dict[tuple[str, str], TensorPred] = {}

    @property
    def dtypes(self) -> list[str]:
        """Dtypes of floats that pairs can be measured of."""
        found = {group.dtype for group in self.hub.groups if len(group.ids) > 1}
        return sorted(found & set(FLOATS))

    @property
    def codec(self) -> str:
        """The codec that tstore uses for deltas by default."""
        return str(self.settings.delta_codec)

    def groups_of(self, *dtypes: str) -> list[SketchGroup]:
        """Groups of these dtypes."""
        return [group for group in self.hub.groups if group.dtype in dtypes]

    def shares(self, dtype: str) -> tuple[float, ...]:
        """Share of each plane group in the bits of an element."""
        return SketchLayout.of(dtype, self.hub.settings).shares

    def choose_pairs(self, dtype: str, count: int) -> list[Pair]:
        """Pairs over the whole range of distances, chosen as an ingest does."""
        groups = [(group, None) for group in self.groups_of(dtype)]
        return choose_pairs(groups, self.hub.settings, np.empty(0), count)

    def measure(self, pairs: Iterable[Pair], codec: str) -> Measured:
        """What the codec makes of these pairs, each tensor as a whole."""
        pairs = list(pairs)
        nbytes = np.array([pair.nbytes for pair in pairs], dtype=np.int64)
        found = self.sizes.measured((pair.target_id, pair.base_id, codec) for pair in pairs)
        p = np.array([pair.group_distance for pair in pairs]).T
        return Measured(p, np.array(found) / nbytes, nbytes)

    def predictor(self, dtype: str, codec: str) -> TensorPred:
        """Fitted once, on as many pairs of the whole hub as an ingest of it would measure."""
        if (dtype, codec) not in self._predictors:
            pairs = self.measure(self.choose_pairs(dtype, self.settings.pairs_per_model), codec)
            self._predictors[dtype, codec] = fit(dtype, codec, self.shares(dtype), pairs)
        return self._predictors[dtype, codec]

    def problem(self, group: SketchGroup, codec: str, stored: SketchGroup | None = None) -> Problem:
        """The choice of bases in a group, beside tensors that are stored whole already."""
        predictor = self.predictor(group.dtype, codec)
        held = [] if stored is None else [stored]
        return group_problem([group], held, predictor, self.settings, self.hub.settings)

    def plan(self, hub: Hub, codec: str, planner: Planner) -> dict[str, str | None]:
        """Plan all tensors of a hub in one run."""
        plan: dict[str, str | None] = dict.fromkeys(hub.arrivals)
        for group in hub.groups:
            plan.update(solve(self.problem(group, codec), planner))
        return plan

    def plan_by_model(self, hub: Hub, codec: str, planner: Planner) -> dict[str, str | None]:
        """Plan each model in a run of its own, when it arrives; earlier plans stay."""
        plan: dict[str, str | None] = {}
        for ids in arriving(hub).values():
            new = dict.fromkeys(ids)
            whole = {(g.dtype, g.shape): g for g in hub.groups_of(i for i in plan if not plan[i])}
            for group in hub.groups_of(ids):
                stored = whole.get((group.dtype, group.shape))
                new.update(solve(self.problem(group, codec, stored), planner))
            plan.update(new)
        return plan

    def stored(self, plan: Plan, codec: str) -> dict[str, int]:
        """Real bytes of each tensor; a delta that turns out larger than alone is stored alone."""
        alone = self.sizes.alone(plan)
        deltas = [(target, base, codec) for target, base in plan.items() if base is not None]
        stored = alone.copy()
        for (target, _, _), nbytes in zip(deltas, self.sizes.measured(deltas), strict=True):
            stored[target] = min(alone[target], nbytes)
        return stored


def arriving(hub: Hub) -> dict[str, list[str]]:
    """Model to the tensors that came with it first, for all models in order of arrival."""
    ids: dict[str, list[str]] = {model: [] for model in hub.contents}
    for tensor_id, (model, _) in hub.arrivals.items():
        ids[model].append(tensor_id)
    return ids


def solve(problem: Problem, planner: Planner) -> dict[str, str | None]:
    """Plan of one group, by names."""
    bases = planner(problem).base
    return {
        name: None if base == STANDALONE else problem.names[base]
        for name, base in zip(problem.names[problem.n_stored :], bases, strict=True)
    }
