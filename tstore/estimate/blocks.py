"""Reading the sampled blocks: what they hold, and who holds the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tstore.errors import SourceRejectedError
from tstore.estimate.clusters import Cluster, Member
from tstore.estimate.sampling import Draw
from tstore.hub.location import HubLocation
from tstore.ids import OPAQUE, content_hash, make_tensor_id
from tstore.objects.ahead import read_ahead
from tstore.settings import MIB, SketchSettings
from tstore.sketch.groups import GroupKey, SketchGroup, evenly
from tstore.sketch.statistics import plane_entropies, standalone_ratio
from tstore.sketch.tensorsketch import build

MAX_MEMBERS = 512
"""Members of a cluster that are read: of a larger one, evenly spaced ones stand for all."""
HELD_NBYTES = 256 * MIB
"""Blocks that stay in memory until they are encoded; others are read again."""


@dataclass
class Block:
    """Distinct content of some sampled blocks.

    Attributes
    ----------
    dtype : str
    shape : tuple of int
    location : HubLocation
        One place where it lies.
    standalone : float
        Predicted stored/raw without a base.
    sketch : int16 array or None
        None where the whole tensor is too small for one.
    data : uint8 array or None
        Its bytes, if they stay in memory.
    """

    dtype: str
    shape: tuple[int, ...]
    location: HubLocation
    standalone: float
    sketch: NDArray[np.int16] | None
    data: NDArray[np.uint8] | None

    def read(self) -> NDArray[np.uint8]:
        """Its bytes; `SourceRejectedError` when the file changed meanwhile."""
        return self.location.read() if self.data is None else self.data


@dataclass
class Sampled:
    """What was read.

    Attributes
    ----------
    blocks : dict of str to Block
        By id, in the order in which they came.
    members : dict of (int, int) to list of (Member, str)
        By `Draw.key`: members that could be read, with the id of what they hold.
    nbytes : int
        Bytes read.
    unreadable : set of str
        Sources that could not be.
    held : int
        Bytes of the blocks that stay in memory, or would have if there were room.
    """

    blocks: dict[str, Block] = field(default_factory=dict)
    members: dict[tuple[int, int], list[tuple[Member, str]]] = field(default_factory=dict)
    nbytes: int = 0
    unreadable: set[str] = field(default_factory=set)
    held: int = 0

    def groups(self) -> dict[GroupKey, SketchGroup]:
        """Those with sketches, by dtype and shape."""
        found: dict[GroupKey, dict[str, NDArray[np.int16]]] = {}
        for name, block in self.blocks.items():
            if block.sketch is not None:
                found.setdefault((block.dtype, block.shape), {})[name] = block.sketch
        return {
            key: SketchGroup(
                dtype=key[0],
                shape=key[1],
                nbytes=self.blocks[next(iter(sketches))].location.nbytes,
                ids=tuple(sketches),
                sketches=np.stack(list(sketches.values())),
                standalone=np.array([self.blocks[name].standalone for name in sketches]),
            )
            for key, sketches in found.items()
        }


def read_blocks(draws: Iterable[Draw], sketch: SketchSettings) -> Sampled:
    """Read, hash and sketch the blocks of all draws, each once."""
    sampled = Sampled()
    distinct = {draw.key: draw for draw in draws}
    for key, draw in distinct.items():
        sampled.members[key] = list(_read(draw, sampled, sketch))
    return sampled


def _read(draw: Draw, sampled: Sampled, sketch: SketchSettings) -> Iterator[tuple[Member, str]]:
    cluster = draw.cluster
    members = [cluster.members[i] for i in evenly(len(cluster.members), MAX_MEMBERS)]
    placed = [cluster.block(member, draw.block) for member in members]
    reads = ((at.source.source, at.nbytes, at.read) for at, _ in placed)
    for member, (at, shape), take in zip(members, placed, read_ahead(reads), strict=True):
        try:
            data = take()
        except SourceRejectedError:
            sampled.unreadable.add(member.source.source)
            continue
        sampled.nbytes += data.nbytes
        name = make_tensor_id(content_hash(data), cluster.dtype, shape)
        if name not in sampled.blocks:
            block = _block(cluster, member, at, shape, data, sketch)
            sampled.held += data.nbytes
            block.data = data if sampled.held <= HELD_NBYTES else None
            sampled.blocks[name] = block
        yield member, name


def _block(
    cluster: Cluster,
    member: Member,
    at: HubLocation,
    shape: tuple[int, ...],
    data: NDArray[np.uint8],
    sketch: SketchSettings,
) -> Block:
    has_sketch = cluster.dtype != OPAQUE and member.nbytes >= sketch.min_nbytes
    return Block(
        dtype=cluster.dtype,
        shape=shape,
        location=at,
        standalone=standalone_ratio(plane_entropies(data, cluster.dtype), data.nbytes),
        sketch=build(data, cluster.dtype, sketch) if has_sketch else None,
        data=None,
    )
