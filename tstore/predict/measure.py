"""Measure real pairs of this hub: the data that TensorPred is fitted on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import tstore_codecs
from tstore.catalog.schema import PAIRS
from tstore.catalog.workspace import shard_key
from tstore.errors import SourceRejectedError
from tstore.hub.location import HubLocation
from tstore.predict.pairs import spread_over_range
from tstore.settings import KIB, MIB, PlanSettings, TaskSettings
from tstore.sketch.groups import SketchGroup
from tstore.sketch.tensorsketch import distance

PAIRS_PER_SHARD = 16
MIN_MEASURED_NBYTES = 64 * KIB
"""Below, tables and headers weigh more than the distance does."""
MAX_MEMBERS = 64
"""Members of a group whose distances are looked at; evenly spaced in arrival order."""
_PIECE_NBYTES = MIB


@dataclass(frozen=True)
class Pair:
    """Two tensors of a group and the distance of their sketches."""

    dtype: str
    target_id: str
    base_id: str
    nbytes: int
    distance: float


@dataclass(frozen=True)
class MeasureShard:
    """Pairs that one task encodes, with where their bytes lie."""

    key: str
    codec: str
    pairs: tuple[tuple[Pair, HubLocation, HubLocation], ...]
    nbytes: int
    memory_nbytes: int


def choose_pairs(groups: Iterable[SketchGroup], depth: int, count: int) -> list[Pair]:
    """About `count` pairs of one dtype, spread over the whole range of distances.

    Parameters
    ----------
    groups : iterable of SketchGroup
        Groups of one dtype.
    depth : int
        Rows of a sketch.
    count : int
        How many pairs at most.
    """
    groups = [group for group in groups if len(group.ids) > 1]
    large = [group for group in groups if group.nbytes >= MIN_MEASURED_NBYTES]
    candidates: list[tuple[SketchGroup, int, int]] = []
    distances: list[NDArray[np.float64]] = []
    for group in large or groups:
        n = len(group.ids)
        members = np.unique(np.linspace(0, n - 1, min(n, MAX_MEMBERS)).astype(np.int64))
        sketches = group.sketches[members]
        bases, targets = np.triu_indices(len(members), k=1)
        matrix = distance(sketches, sketches, depth, group.nbytes)
        distances.append(matrix[bases, targets])
        candidates += [
            (group, int(members[t]), int(members[b])) for b, t in zip(bases, targets, strict=True)
        ]
    if not candidates:
        return []
    flat = np.concatenate(distances)
    return [
        Pair(group.dtype, group.ids[target], group.ids[base], group.nbytes, float(flat[index]))
        for index in spread_over_range(flat, count)
        for group, target, base in [candidates[index]]
    ]


def plan_measurements(
    pairs: Sequence[Pair],
    locate: Callable[[str], HubLocation],
    plan: PlanSettings,
    tasks: TaskSettings,
) -> list[MeasureShard]:
    """Shards of pairs; `locate` says where the bytes of a tensor lie."""
    codec = plan.delta_codec
    if codec is None:
        return []
    shards = []
    for first in range(0, len(pairs), PAIRS_PER_SHARD):
        batch = pairs[first : first + PAIRS_PER_SHARD]
        key = shard_key([codec, plan.measure_nbytes, [[p.target_id, p.base_id] for p in batch]])
        nbytes = sum(2 * min(pair.nbytes, plan.measure_nbytes) for pair in batch)
        located = tuple((p, locate(p.target_id), locate(p.base_id)) for p in batch)
        memory = tasks.base_memory_nbytes + tasks.memory_factor * plan.measure_nbytes
        shards.append(MeasureShard(key, codec, located, nbytes, memory))
    return shards


def measure_shard(shard: MeasureShard, plan: PlanSettings) -> dict[str, pa.Table]:
    """Rows ``pairs``: the stored/raw ratio that the codec really reaches on each pair."""
    rows = []
    for pair, target_at, base_at in shard.pairs:
        ranges = _pieces(pair.nbytes, plan.measure_nbytes)
        try:
            target, base = target_at.read_pieces(ranges), base_at.read_pieces(ranges)
        except SourceRejectedError:  # one pair less; encoding the file reports it
            continue
        blob = tstore_codecs.encode(target, dtype=pair.dtype, codec=shard.codec, base=base)
        rows.append(
            {
                "dtype": pair.dtype,
                "codec": shard.codec,
                "target_id": pair.target_id,
                "base_id": pair.base_id,
                "nbytes": target.nbytes,
                "distance": pair.distance,
                "ratio": len(blob) / target.nbytes,
            }
        )
    return {"pairs": pa.Table.from_pylist(rows, PAIRS)}


def _pieces(nbytes: int, limit: int) -> list[tuple[int, int]]:
    """Ranges of at most `limit` bytes together, evenly spaced, element aligned."""
    if nbytes <= limit:
        return [(0, nbytes)]
    piece = min(_PIECE_NBYTES, limit)
    starts = np.linspace(0, nbytes - piece, limit // piece).astype(np.int64) // 8 * 8
    return [(int(start), int(start) + piece) for start in starts]
