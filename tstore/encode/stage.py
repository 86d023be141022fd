"""Stage 2: encode, decode again and compare, pack, publish."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import tstore_codecs
from tstore.catalog import keys
from tstore.catalog.blobs import BlobLocation, resized
from tstore.catalog.schema import BLOBS, FAILURES
from tstore.encode.pack import Pack, PackEntry, build_pack
from tstore.encode.shards import EncodeItem, EncodeShard
from tstore.errors import (
    BlobDamagedError,
    BlobMissingError,
    ObjectExistsError,
    SourceRejectedError,
    VerificationError,
)
from tstore.hub.location import HubTensor
from tstore.ids import content_hash, parse_tensor_id, sha256
from tstore.objects import ObjectStore, open_objects

_WORTH_TRYING_ALONE = 0.9
"""A delta above this share of the predicted standalone size is compared with the real one."""


@dataclass
class _BaseCache:
    """The base of the last delta: its siblings follow at once."""

    tensor_id: str = ""
    data: NDArray[np.uint8] | None = None


def encode_shard(shard: EncodeShard, store_uri: str, standalone_codec: str) -> dict[str, pa.Table]:
    """Publish one pack; rows ``blobs``, and ``failures`` for what could not be read.

    A delta that turns out larger than the tensor alone is stored alone.

    Raises
    ------
    VerificationError
        A blob did not decode to its source; the pack is not written.
    """
    objects = open_objects(store_uri)
    cache = _BaseCache()
    entries: list[PackEntry] = []
    rows: list[dict[str, object]] = []
    failures: list[dict[str, object]] = []
    for item in shard.items:
        source = item.target.location.source.source
        try:
            target = item.target.read()
            source = _base_source(item) or source
            base = _read_base(item, objects, cache)
        except SourceRejectedError as error:
            failures.append(_failure_row(item, source, error))
            continue
        fitting = None if base is None else resized(base, target.size)
        entry = _encode(item, target, fitting, standalone_codec)
        entries.append(entry)
        rows.append(_blob_row(item, entry))
    if entries:
        pack = build_pack(entries)
        _publish(objects, pack)
        for row, offset in zip(rows, pack.offsets, strict=True):
            row.update(pack=pack.pack_id, offset=offset)
    return {
        "blobs": pa.Table.from_pylist(rows, BLOBS),
        "failures": pa.Table.from_pylist(failures, FAILURES),
    }


def _publish(objects: ObjectStore, pack: Pack) -> None:
    """Write a pack. One that lies there from an earlier try must be the same, or is replaced."""
    key = keys.pack(pack.pack_id)
    try:
        objects.put_new(key, pack.parts)
    except ObjectExistsError:
        if sha256(objects.get(key)) != pack.pack_id:
            objects.put(key, pack.parts)


def _base_source(item: EncodeItem) -> str | None:
    return item.base.location.source.source if isinstance(item.base, HubTensor) else None


def _read_base(
    item: EncodeItem, objects: ObjectStore, cache: _BaseCache
) -> NDArray[np.uint8] | None:
    if item.base is None:
        return None
    if cache.tensor_id != item.base.tensor_id:
        base = item.base
        data = base.read() if isinstance(base, HubTensor) else _read_stored(base, objects)
        cache.tensor_id, cache.data = base.tensor_id, data  # not before the read has succeeded
    return cache.data


def _read_stored(base: BlobLocation, objects: ObjectStore) -> NDArray[np.uint8] | None:
    """A base from the store; None if it is damaged, which must not stop what is new."""
    try:
        return base.check(tstore_codecs.decode(base.read(objects)))
    except (BlobDamagedError, BlobMissingError, tstore_codecs.CodecError):
        return None


def _encode(
    item: EncodeItem,
    target: NDArray[np.uint8],
    base: NDArray[np.uint8] | None,
    standalone_codec: str,
) -> PackEntry:
    if base is None or item.base is None:
        codec, base_id = item.codec if item.base is None else standalone_codec, None
    else:
        codec, base_id = item.codec, item.base.tensor_id
    _, _, shape = parse_tensor_id(item.target.tensor_id)
    blob = tstore_codecs.encode(target, dtype=item.dtype, codec=codec, shape=shape, base=base)
    if base is not None and len(blob) > _WORTH_TRYING_ALONE * item.alone_nbytes:
        alone = tstore_codecs.encode(target, dtype=item.dtype, codec=standalone_codec, shape=shape)
        if len(alone) <= len(blob):
            blob, codec, base, base_id = alone, standalone_codec, None, None
    if not np.array_equal(tstore_codecs.decode(blob, base=base), target):
        raise VerificationError(
            f"expected the {codec} blob of {item.target.tensor_id} to decode to its source bytes, "
            "found others; nothing of it was published, please report it with the tensor",
            tensor_id=item.target.tensor_id,
        )
    return PackEntry(item.target.tensor_id, blob, codec, base_id, content_hash(blob))


def _blob_row(item: EncodeItem, entry: PackEntry) -> dict[str, object]:
    return {
        "tensor_id": entry.tensor_id,
        "sha256": item.target.sha256,
        "dtype": item.dtype,
        "raw_nbytes": item.nbytes,
        "nbytes": len(entry.blob),
        "codec": entry.codec,
        "base_id": entry.base_id,
        "checksum": entry.checksum,
    }


def _failure_row(item: EncodeItem, source: str, error: SourceRejectedError) -> dict[str, object]:
    return {
        "tensor_id": item.target.tensor_id,
        "source": source,
        "reason": type(error).__name__,
        "message": str(error),
    }
