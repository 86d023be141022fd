"""Planning as a stage: groups that depend on one another, cut into shards of bounded memory."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, replace

import pyarrow as pa

from tstore.catalog.workspace import shard_key
from tstore.plan.placed import PlacedGroups, batched
from tstore.plan.planner import PlanInput, plan_groups
from tstore.plan.resized import kin_shapes
from tstore.predict.tensorpred import TensorPred
from tstore.settings import MIB, PlanSettings, SketchSettings, TaskSettings
from tstore.sketch.groups import GroupKey, GroupRows
from tstore.sketch.parts import FingerprintParts

SHARD_ROWS = 8 * 1024
"""Sketches per shard: 64 MiB at the default size. A larger set of kin is alone."""
_SEARCH_NBYTES = 512 * MIB
"""What the search of the largest group takes beside its sketches, whatever its size; and"""
_TENSOR_NBYTES = 8 * 1024
"""for each of its tensors: likely bases and their prices."""


@dataclass(frozen=True)
class PlanUnit:
    """Groups that are planned together: kin (see `kin_shapes`), or one.

    Attributes
    ----------
    new, stored : tuple of GroupRows
    in_use : frozenset of str
        New tensors that stored deltas need.
    digest : str
        Hash of the tensors and their order.
    """

    new: tuple[GroupRows, ...]
    stored: tuple[GroupRows, ...]
    in_use: frozenset[str]
    digest: str

    @property
    def n_sketches(self) -> int:
        """Sketches to read."""
        return sum(group.rows.size for group in (*self.new, *self.stored))


@dataclass(frozen=True)
class PlanSetup:
    """What all shards have in common.

    Attributes
    ----------
    new, stored : FingerprintParts
        Where the fingerprints lie.
    predictors : mapping of str to TensorPred
    settings : PlanSettings
    sketch : SketchSettings
    """

    new: FingerprintParts
    stored: FingerprintParts
    predictors: Mapping[str, TensorPred]
    settings: PlanSettings
    sketch: SketchSettings

    @property
    def digest(self) -> str:
        """Hash of all that decides a plan beside its tensors."""
        predictors = {dtype: found.to_json() for dtype, found in self.predictors.items()}
        return shard_key([predictors, asdict(self.settings), asdict(self.sketch)])


@dataclass(frozen=True)
class PlanShard:
    """Units that one task plans.

    Attributes
    ----------
    setup : str
        `PlanSetup.digest`.
    units : tuple of PlanUnit
    sketch_nbytes : int
        Size of one sketch.
    base_memory_nbytes : int
        What a worker takes before any data.
    """

    setup: str
    units: tuple[PlanUnit, ...]
    sketch_nbytes: int
    base_memory_nbytes: int

    @property
    def key(self) -> str:
        """Hash of everything that decides the plan."""
        return shard_key([self.setup, [[u.digest, sorted(u.in_use)] for u in self.units]])

    @property
    def nbytes(self) -> int:
        """Sketches to read, in bytes: raw bytes are none of this stage's."""
        return self.sketch_nbytes * sum(unit.n_sketches for unit in self.units)

    @property
    def memory_nbytes(self) -> int:
        """What a task may take: all sketches, those of the largest unit twice, and its search."""
        largest = max(unit.n_sketches for unit in self.units)
        search = _SEARCH_NBYTES + largest * (self.sketch_nbytes + _TENSOR_NBYTES)
        return self.base_memory_nbytes + self.nbytes + search

    def halves(self) -> tuple[PlanShard, ...]:
        """The same units as two shards; nothing if it is one."""
        middle = len(self.units) // 2
        parts = (self.units[:middle], self.units[middle:]) if middle else ()
        return tuple(replace(self, units=units) for units in parts)


def plan_shards(
    new: PlacedGroups,
    stored: PlacedGroups,
    in_use: Mapping[GroupKey, AbstractSet[str]],
    setup: PlanSetup,
    tasks: TaskSettings,
) -> list[PlanShard]:
    """Cut the groups to plan into shards, the largest first.

    Parameters
    ----------
    new, stored : PlacedGroups
    in_use : mapping of (dtype, shape) to set of str
        New tensors that stored deltas need.
    setup : PlanSetup
        Only dtypes with a predictor are planned.
    tasks : TaskSettings
    """
    planned = [key for key in new.groups if key[0] in setup.predictors]
    units = [_unit(keys, new, stored, in_use) for keys in _together(planned, list(stored.groups))]
    nbytes = 2 * setup.sketch.depth * setup.sketch.width
    digest = setup.digest
    shards = [
        PlanShard(digest, tuple(batch), nbytes, tasks.base_memory_nbytes)
        for batch in batched(units, lambda unit: unit.n_sketches, SHARD_ROWS)
    ]
    return sorted(shards, key=lambda shard: shard.memory_nbytes, reverse=True)


def plan_shard(shard: PlanShard, setup: PlanSetup) -> dict[str, pa.Table]:
    """Rows ``plans`` of the deltas of a shard and of their new bases."""
    new = setup.new.read([group for unit in shard.units for group in unit.new])
    stored = setup.stored.read([group for unit in shard.units for group in unit.stored])
    plans = plan_groups(
        PlanInput(
            new={(group.dtype, group.shape): group for group in new},
            stored={(group.dtype, group.shape): group for group in stored},
            predictors=setup.predictors,
            bases_in_use=frozenset().union(*(unit.in_use for unit in shard.units)),
            settings=setup.settings,
            sketch=setup.sketch,
        )
    )
    return {"plans": plans}


def _together(planned: list[GroupKey], stored: list[GroupKey]) -> list[list[GroupKey]]:
    """Sets of shapes that depend on one another, in the order of the first that is planned."""
    kin_of = {key: kin for kin in kin_shapes([*planned, *stored]) for key in kin}
    sets = {tuple(kin_of.get(key, [key])): None for key in planned}
    return [list(keys) for keys in sets]


def _unit(
    keys: list[GroupKey],
    new: PlacedGroups,
    stored: PlacedGroups,
    in_use: Mapping[GroupKey, AbstractSet[str]],
) -> PlanUnit:
    digests = [[placed.digests.get(key, "") for placed in (new, stored)] for key in keys]
    return PlanUnit(
        new=tuple(new.groups[key] for key in keys if key in new.groups),
        stored=tuple(stored.groups[key] for key in keys if key in stored.groups),
        in_use=frozenset().union(*(in_use.get(key, ()) for key in keys)),
        digest=shard_key([[dtype, list(shape)] for dtype, shape in keys] + digests),
    )
