"""Cut a plan into encode shards: a base and its deltas side by side, about one pack each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tstore.catalog.blobs import BlobLocation
from tstore.catalog.workspace import shard_key
from tstore.hub.location import HubTensor
from tstore.settings import TaskSettings

MAX_ITEMS = 64 * 1024
"""Items per shard: each takes some 400 bytes of the pack's header, which may have 100 MB."""


@dataclass(frozen=True)
class EncodeItem:
    """One tensor or opaque extent to encode.

    Attributes
    ----------
    target : HubTensor
        What to encode.
    dtype, codec : str
        How to encode it.
    base : HubTensor, BlobLocation or None
        Base of a delta: in the hub, or in the store when an earlier run stored it.
    alone_nbytes : int
        Predicted size without a base.
    """

    target: HubTensor
    dtype: str
    codec: str
    base: HubTensor | BlobLocation | None = None
    alone_nbytes: int = 0

    @property
    def nbytes(self) -> int:
        """Raw bytes."""
        return self.target.location.nbytes


@dataclass(frozen=True)
class EncodeShard:
    """Items that one task encodes into one pack."""

    key: str
    items: tuple[EncodeItem, ...]
    nbytes: int
    memory_nbytes: int


def plan_shards(
    items: Sequence[EncodeItem], standalone_codec: str, tasks: TaskSettings
) -> list[EncodeShard]:
    """Shards of about ``tasks.encode_nbytes`` raw bytes, the same for the same items.

    Items come in arrival order. Clusters (a base, then its deltas) are kept together and follow
    one another in the order of their first member.
    """
    shards = []
    for batch in _batches(_by_cluster(items), tasks.encode_nbytes):
        content = [_content(item) for item in batch]
        largest = max(item.nbytes for item in batch)
        shards.append(
            EncodeShard(
                key=shard_key([content, standalone_codec]),
                items=tuple(batch),
                nbytes=sum(item.nbytes for item in batch),
                memory_nbytes=tasks.base_memory_nbytes
                + tasks.memory_factor * largest
                + tasks.encode_nbytes,
            )
        )
    return shards


def _by_cluster(items: Sequence[EncodeItem]) -> Iterable[EncodeItem]:
    clusters: dict[str, list[EncodeItem]] = {}
    for item in items:
        if item.base is None:
            clusters.setdefault(item.target.tensor_id, []).insert(0, item)
        else:
            clusters.setdefault(item.base.tensor_id, []).append(item)
    for cluster in clusters.values():
        yield from cluster


def _batches(items: Iterable[EncodeItem], limit: int) -> Iterable[list[EncodeItem]]:
    batch: list[EncodeItem] = []
    nbytes = 0
    for item in items:
        if batch and (nbytes + item.nbytes > limit or len(batch) == MAX_ITEMS):
            yield batch
            batch, nbytes = [], 0
        batch.append(item)
        nbytes += item.nbytes
    if batch:
        yield batch


def _content(item: EncodeItem) -> list[object]:
    """What decides the bytes of the item's blob, and where they are read."""
    place = item.target.location
    base_id = item.base.tensor_id if item.base is not None else None
    return [item.target.tensor_id, item.codec, base_id, place.source.source, place.source.tag]
