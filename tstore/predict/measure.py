"""Measure real pairs of this hub: the data that TensorPred is fitted on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import pyarrow as pa

import tstore_codecs
from tstore.activity import spending
from tstore.catalog.schema import PAIRS
from tstore.catalog.stored import StoredTensor
from tstore.catalog.workspace import shard_key
from tstore.errors import BlobDamagedError, BlobMissingError, SourceRejectedError, WorkerLostError
from tstore.hub.location import HubLocation
from tstore.predict.pairs import Pair
from tstore.settings import KIB, PlanSettings, TaskSettings

PAIRS_PER_SHARD = 16
_PIECE_NBYTES = 256 * KIB
_WORD_NBYTES = 24
"""Pieces of it start and end at an element, whatever the dtype: four of 6 bits take 3 bytes."""


Readable: TypeAlias = HubLocation | StoredTensor


@dataclass(frozen=True)
class MeasureShard:
    """Pairs that one task encodes, with where their bytes lie."""

    key: str
    codec: str
    pairs: tuple[tuple[Pair, Readable, Readable], ...]
    nbytes: int
    memory_nbytes: int

    def halves(self) -> tuple[MeasureShard, ...]:
        """The same pairs as two shards; nothing if it is one."""
        middle = len(self.pairs) // 2
        parts = (self.pairs[:middle], self.pairs[middle:]) if middle else ()
        return tuple(
            replace(self, key=shard_key([self.key, number]), pairs=pairs, nbytes=self.nbytes // 2)
            for number, pairs in enumerate(parts)
        )


def plan_measurements(
    pairs: Sequence[Pair],
    places: Mapping[str, Readable],
    plan: PlanSettings,
    tasks: TaskSettings,
) -> list[MeasureShard]:
    """Shards of pairs; `places` has where the bytes of each tensor lie, in the hub or the store."""
    codec = plan.delta_codec
    if codec is None:
        return []
    shards = []
    for first in range(0, len(pairs), PAIRS_PER_SHARD):
        batch = pairs[first : first + PAIRS_PER_SHARD]
        key = shard_key([codec, plan.measure_nbytes, [[p.target_id, p.base_id] for p in batch]])
        nbytes = sum(2 * min(pair.nbytes, plan.measure_nbytes) for pair in batch)
        located = tuple((p, places[p.target_id], places[p.base_id]) for p in batch)
        memory = tasks.base_memory_nbytes + tasks.memory_factor * plan.measure_nbytes
        shards.append(MeasureShard(key, codec, located, nbytes, memory))
    return shards


def measure_shard(shard: MeasureShard, plan: PlanSettings) -> dict[str, pa.Table]:
    """Rows ``pairs``: the stored/raw ratio that the codec really reaches on each pair."""
    rows = []
    for pair, target_at, base_at in shard.pairs:
        ranges, shape = _pieces(pair, plan.measure_nbytes)
        try:
            target, base = target_at.read_pieces(ranges), base_at.read_pieces(ranges)
        except (SourceRejectedError, BlobDamagedError, BlobMissingError):
            # One pair less; encoding the file, or verifying the store, reports it.
            continue
        with spending("encode", target.nbytes):
            blob = tstore_codecs.encode(
                target, dtype=pair.dtype, codec=shard.codec, base=base, shape=shape
            )
        rows.append(
            {
                "dtype": pair.dtype,
                "codec": shard.codec,
                "target_id": pair.target_id,
                "base_id": pair.base_id,
                "nbytes": target.nbytes,
                "distance": pair.distance,
                "group_distance": list(pair.group_distance),
                "ratio": len(blob) / target.nbytes,
            }
        )
    return {"pairs": pa.Table.from_pylist(rows, PAIRS)}


def rows_of_lost(shard: MeasureShard, error: WorkerLostError) -> dict[str, pa.Table]:
    """A pair that no worker survives is one pair less."""
    return {"pairs": PAIRS.empty_table()}


def _pieces(pair: Pair, limit: int) -> tuple[list[tuple[int, int]], tuple[int, ...]]:
    """Ranges of at most `limit` bytes together, evenly spaced, and the shape of what they hold.

    They are whole rows where rows are short enough, so that a codec that looks at rows sees them.
    """
    if pair.nbytes <= limit:
        return [(0, pair.nbytes)], pair.shape
    row, rest = divmod(pair.nbytes, pair.shape[0])
    by_row = row <= _PIECE_NBYTES and not rest
    unit = row if by_row else _WORD_NBYTES
    piece = min(_PIECE_NBYTES, limit) // unit * unit
    last = (pair.nbytes - piece) // unit
    starts = np.linspace(0, last, limit // piece).astype(np.int64) * unit
    ranges = [(int(start), int(start) + piece) for start in starts]
    if by_row:
        return ranges, (len(ranges) * piece // row, *pair.shape[1:])
    n_elements = math.prod(pair.shape) * len(ranges) * piece // pair.nbytes
    return ranges, (n_elements,)
