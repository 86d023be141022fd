"""Measure real pairs of this hub: the data that TensorPred is fitted on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import tstore_codecs
from tstore.catalog.blobs import BlobLocation
from tstore.catalog.schema import PAIRS
from tstore.catalog.workspace import shard_key
from tstore.errors import BlobDamagedError, BlobMissingError, SourceRejectedError
from tstore.hub.location import HubLocation
from tstore.objects import open_objects
from tstore.predict.pairs import cover_range
from tstore.settings import KIB, PlanSettings, SketchSettings, TaskSettings
from tstore.sketch.distances import distance, group_distances, one_blas_thread
from tstore.sketch.groups import SketchGroup
from tstore.sketch.layout import SketchLayout

PAIRS_PER_SHARD = 16
MIN_MEASURED_NBYTES = 64 * KIB
"""Below, tables and headers weigh more than the distance does."""
MAX_MEMBERS = 64
"""Members of a group whose distances are looked at; evenly spaced in arrival order."""
_PIECE_NBYTES = 256 * KIB
_WORD_NBYTES = 8
"""Pieces of it start at an element, whatever the dtype."""


@dataclass(frozen=True)
class Pair:
    """Two tensors of a group and the distance of their sketches, whole and per plane group."""

    dtype: str
    shape: tuple[int, ...]
    target_id: str
    base_id: str
    nbytes: int
    distance: float
    group_distance: tuple[float, ...]


@dataclass(frozen=True)
class StoredLocation:
    """Where the bytes of a tensor lie that the store holds whole.

    Attributes
    ----------
    store_uri : str
    blob : BlobLocation
    """

    store_uri: str
    blob: BlobLocation

    def read_pieces(self, ranges: Sequence[tuple[int, int]]) -> NDArray[np.uint8]:
        """Raw bytes of these ranges, one after the other.

        Raises
        ------
        BlobMissingError, BlobDamagedError
        """
        encoded = self.blob.read(open_objects(self.store_uri))
        try:
            parts = [tstore_codecs.decode_range(encoded, start, stop) for start, stop in ranges]
        except tstore_codecs.CodecError as error:
            raise BlobDamagedError(
                f"expected the blob of {self.blob.tensor_id} in pack {self.blob.pack} to decode: "
                f"{error}",
                tensor_id=self.blob.tensor_id,
            ) from error
        return np.concatenate(parts)


Readable: TypeAlias = HubLocation | StoredLocation


@dataclass(frozen=True)
class MeasureShard:
    """Pairs that one task encodes, with where their bytes lie."""

    key: str
    codec: str
    pairs: tuple[tuple[Pair, Readable, Readable], ...]
    nbytes: int
    memory_nbytes: int


def choose_pairs(
    groups: Iterable[tuple[SketchGroup, SketchGroup | None]],
    settings: SketchSettings,
    known: NDArray[np.float64],
    count: int,
) -> list[Pair]:
    """Pairs of one dtype to measure, so that all distances of this hub are known about.

    Parameters
    ----------
    groups : iterable of (SketchGroup, SketchGroup or None)
        New tensors, and those of the same shape that the store holds whole. A target is new.
    settings : SketchSettings
        Of the sketches.
    known : float64 (n,)
        Distances of the pairs that earlier runs measured.
    count : int
        Pairs that cover the whole range; fewer are chosen where it is covered.
    """
    with one_blas_thread():
        candidates = [_candidates(new, stored, settings) for new, stored in groups]
    candidates = [c for c in candidates if c.distance.size]
    candidates = [c for c in candidates if c.nbytes >= MIN_MEASURED_NBYTES] or candidates
    if not candidates:
        return []
    flat = np.concatenate([c.distance for c in candidates])
    starts = np.cumsum([0, *(c.distance.size for c in candidates)])
    pairs = []
    for index in cover_range(flat, known, count):
        number = int(np.searchsorted(starts, index, side="right")) - 1
        pairs.append(candidates[number].pair(int(index - starts[number])))
    return pairs


@dataclass(frozen=True)
class _Candidates:
    """Pairs of some members of one group."""

    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    ids: tuple[str, ...]
    targets: NDArray[np.int64]
    bases: NDArray[np.int64]
    distance: NDArray[np.float64]
    group_distance: NDArray[np.float64]  # (plane groups, pairs)

    def pair(self, index: int) -> Pair:
        return Pair(
            dtype=self.dtype,
            shape=self.shape,
            target_id=self.ids[self.targets[index]],
            base_id=self.ids[self.bases[index]],
            nbytes=self.nbytes,
            distance=float(self.distance[index]),
            group_distance=tuple(map(float, self.group_distance[:, index])),
        )


def _candidates(
    new: SketchGroup, stored: SketchGroup | None, settings: SketchSettings
) -> _Candidates:
    layout = SketchLayout.of(new.dtype, settings)
    parts = [_some(new)] if stored is None else [_some(stored), _some(new)]
    ids = tuple(name for part in parts for name in part.ids)
    bases, targets = np.triu_indices(len(ids), k=1)
    are_new = targets >= len(ids) - len(parts[-1].ids)
    bases, targets = bases[are_new], targets[are_new]
    sketches = np.concatenate([part.sketches for part in parts])
    matrix = group_distances(sketches, sketches, layout, new.nbytes)
    apart = matrix[:, bases, targets]
    return _Candidates(
        dtype=new.dtype,
        shape=new.shape,
        nbytes=new.nbytes,
        ids=ids,
        targets=targets,
        bases=bases,
        distance=distance(apart, layout),
        group_distance=apart,
    )


def _some(group: SketchGroup) -> SketchGroup:
    """At most `MAX_MEMBERS`, evenly spaced."""
    n = len(group.ids)
    return group.take(np.unique(np.linspace(0, n - 1, min(n, MAX_MEMBERS)).astype(np.int64)))


def plan_measurements(
    pairs: Sequence[Pair],
    locate: Callable[[str], Readable],
    plan: PlanSettings,
    tasks: TaskSettings,
) -> list[MeasureShard]:
    """Shards of pairs; `locate` says where the bytes of a tensor lie, in the hub or the store."""
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
        ranges, shape = _pieces(pair, plan.measure_nbytes)
        try:
            target, base = target_at.read_pieces(ranges), base_at.read_pieces(ranges)
        except (SourceRejectedError, BlobDamagedError, BlobMissingError):
            # One pair less; encoding the file, or verifying the store, reports it.
            continue
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


def _pieces(pair: Pair, limit: int) -> tuple[list[tuple[int, int]], tuple[int, ...]]:
    """Ranges of at most `limit` bytes together, evenly spaced, and the shape of what they hold.

    They are whole rows where rows are short enough, so that a codec that looks at rows sees them.
    """
    if pair.nbytes <= limit:
        return [(0, pair.nbytes)], pair.shape
    row, rest = divmod(pair.nbytes, pair.shape[0])
    unit = row if row <= _PIECE_NBYTES and not rest else _WORD_NBYTES
    piece = min(_PIECE_NBYTES, limit) // unit * unit
    last = (pair.nbytes - piece) // unit
    starts = np.linspace(0, last, limit // piece).astype(np.int64) * unit
    ranges = [(int(start), int(start) + piece) for start in starts]
    if unit == row:
        return ranges, (len(ranges) * piece // row, *pair.shape[1:])
    n_elements = math.prod(pair.shape) * len(ranges) * piece // pair.nbytes
    return ranges, (n_elements,)
