"""Cut a plan into encode shards: a base and its deltas side by side, about one pack each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tstore.catalog.stored import StoredTensor
from tstore.catalog.workspace import shard_key
from tstore.hub.location import HubTensor
from tstore.objects.ahead import AHEAD_NBYTES
from tstore.settings import TaskSettings

MAX_ITEMS = 64 * 1024
"""Items per shard: each takes some 400 bytes of the pack's header, which may have 100 MB."""


@dataclass(frozen=True)
class EncodeItem:
    """One tensor or opaque extent to encode.

    Attributes
    ----------
    target : HubTensor or StoredTensor
        What to encode.
    dtype, codec : str
        How to encode it.
    base : HubTensor, StoredTensor or None
        Base of a delta: in the hub, or in the store when an earlier run stored it.
    alone_nbytes : int
        Predicted size without a base.
    """

    target: HubTensor | StoredTensor
    dtype: str
    codec: str
    base: HubTensor | StoredTensor | None = None
    alone_nbytes: int = 0

    @property
    def nbytes(self) -> int:
        """Raw bytes."""
        return self.target.nbytes


@dataclass(frozen=True)
class EncodeSetup:
    """What all shards have in common.

    Attributes
    ----------
    store_uri : str
        Where packs go.
    standalone_codec : str
        Codec of what turns out larger as a delta.
    base_cache_nbytes : int
        Decoded bases that a worker keeps.
    generation : str
        The last run that gave packs up, or nothing. It is part of each pack, so that a pack that is
        made later never has the name of one that gc may still be about to remove.
    """

    store_uri: str
    standalone_codec: str
    base_cache_nbytes: int
    generation: str = ""


@dataclass(frozen=True)
class EncodeShard:
    """Items that one task encodes into one pack."""

    key: str
    items: tuple[EncodeItem, ...]
    nbytes: int
    memory_nbytes: int

    def halves(self) -> tuple[EncodeShard, ...]:
        """The same items as two shards; nothing if it is one."""
        middle = len(self.items) // 2
        parts = (self.items[:middle], self.items[middle:]) if middle else ()
        return tuple(
            EncodeShard(
                key=shard_key([self.key, number]),
                items=items,
                nbytes=sum(item.nbytes for item in items),
                memory_nbytes=self.memory_nbytes,
            )
            for number, items in enumerate(parts)
        )


def plan_shards(
    items: Iterable[EncodeItem], setup: EncodeSetup, tasks: TaskSettings
) -> Iterator[EncodeShard]:
    """Shards of about ``tasks.encode_nbytes`` raw bytes, the same for the same items.

    Items come cluster by cluster: a base, then its deltas. They are taken as shards are asked
    for, so that they need not exist all at once.
    """
    for batch in _batches(items, tasks.encode_nbytes):
        content = [_content(item) for item in batch]
        largest = max(item.nbytes for item in batch)
        yield EncodeShard(
            key=shard_key([content, setup.standalone_codec, setup.generation]),
            items=tuple(batch),
            nbytes=sum(item.nbytes for item in batch),
            memory_nbytes=tasks.base_memory_nbytes
            + tasks.base_cache_nbytes
            + AHEAD_NBYTES
            + tasks.memory_factor * largest
            + tasks.encode_nbytes,
        )


def _batches(items: Iterable[EncodeItem], limit: int) -> Iterator[list[EncodeItem]]:
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
    target = item.target
    base_id = item.base.tensor_id if item.base is not None else None
    return [target.tensor_id, item.codec, base_id, target.place, target.version]
