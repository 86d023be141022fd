"""Copy blobs as they are into new packs, so that packs with little of use can go."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from tstore.activity import spending
from tstore.catalog.blobs import BlobLocation
from tstore.catalog.schema import BLOBS
from tstore.catalog.workspace import shard_key
from tstore.encode.pack import PackEntry, publish_entries
from tstore.encode.shards import MAX_ITEMS, EncodeSetup
from tstore.errors import BlobDamagedError, BlobMissingError
from tstore.objects import open_objects
from tstore.settings import TaskSettings


@dataclass(frozen=True)
class BlobToCopy:
    """A blob, and the columns of ``blobs`` that reading it does not need."""

    location: BlobLocation
    dtype: str
    codec: str


@dataclass(frozen=True)
class CopyShard:
    """Blobs that one task copies into one pack."""

    blobs: tuple[BlobToCopy, ...]
    generation: str
    base_memory_nbytes: int

    @property
    def key(self) -> str:
        """Hash of what is copied, and from where; see `EncodeSetup.generation`."""
        places = [[b.location.tensor_id, b.location.pack] for b in self.blobs]
        return shard_key([places, self.generation])

    @property
    def nbytes(self) -> int:
        """Encoded bytes."""
        return sum(blob.location.nbytes for blob in self.blobs)

    @property
    def memory_nbytes(self) -> int:
        """All blobs are held, and what a worker takes anyway."""
        return self.base_memory_nbytes + self.nbytes

    def halves(self) -> tuple[CopyShard, ...]:
        """The same blobs as two shards; nothing if it is one."""
        middle = len(self.blobs) // 2
        parts = (self.blobs[:middle], self.blobs[middle:]) if middle else ()
        return tuple(replace(self, blobs=part) for part in parts)


def copy_shards(
    blobs: Iterable[BlobToCopy], setup: EncodeSetup, tasks: TaskSettings
) -> Iterator[CopyShard]:
    """Shards of about ``tasks.encode_nbytes`` encoded bytes."""
    held, nbytes = list[BlobToCopy](), 0
    for blob in blobs:
        size = blob.location.nbytes
        if held and (nbytes + size > tasks.encode_nbytes or len(held) == MAX_ITEMS):
            yield CopyShard(tuple(held), setup.generation, tasks.base_memory_nbytes)
            held, nbytes = [], 0
        held.append(blob)
        nbytes += size
    if held:
        yield CopyShard(tuple(held), setup.generation, tasks.base_memory_nbytes)


def copy_shard(shard: CopyShard, setup: EncodeSetup) -> dict[str, pa.Table]:
    """Publish one pack; rows ``blobs`` of what could be copied.

    Each blob is compared with its checksum. One that is damaged stays where it is, for a backup to
    mend.
    """
    objects = open_objects(setup.store_uri)
    entries, rows = list[PackEntry](), list[dict[str, object]]()
    for blob in shard.blobs:
        place = blob.location
        try:
            with spending("read", place.nbytes):
                data = place.read(objects)
        except (BlobMissingError, BlobDamagedError):
            continue
        entries.append(PackEntry(place.tensor_id, data, blob.codec, place.base_id, place.checksum))
        rows.append(
            {
                "tensor_id": place.tensor_id,
                "sha256": place.sha256,
                "dtype": blob.dtype,
                "raw_nbytes": place.raw_nbytes,
                "nbytes": place.nbytes,
                "codec": blob.codec,
                "base_id": place.base_id,
                "checksum": place.checksum,
            }
        )
    publish_entries(objects, entries, rows, setup.generation)
    return {"blobs": pa.Table.from_pylist(rows, BLOBS)}
