"""Stage 2: encode, decode again and compare, pack, publish."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import tstore_codecs
from tstore.activity import spending
from tstore.catalog import keys
from tstore.catalog.blobs import BlobLocation, resized
from tstore.catalog.schema import BLOBS, FAILURES
from tstore.encode.bases import BaseCache, worker_bases
from tstore.encode.pack import Pack, PackEntry, build_pack
from tstore.encode.shards import EncodeItem, EncodeShard
from tstore.errors import (
    BlobDamagedError,
    BlobMissingError,
    ObjectExistsError,
    SourceRejectedError,
    VerificationError,
    WorkerLostError,
)
from tstore.hub.location import HubTensor
from tstore.ids import content_hash, parse_tensor_id, sha256
from tstore.objects import ObjectStore, open_objects
from tstore.objects.ahead import is_remote, read_ahead

_WORTH_TRYING_ALONE = 0.9
"""A delta above this share of the predicted standalone size is compared with the real one."""


def encode_shard(
    shard: EncodeShard, store_uri: str, standalone_codec: str, base_cache_nbytes: int
) -> dict[str, pa.Table]:
    """Publish one pack; rows ``blobs``, and ``failures`` for what could not be read.

    A delta that turns out larger than the tensor alone is stored alone.

    Raises
    ------
    VerificationError
        A blob did not decode to its source; the pack is not written.
    """
    objects = open_objects(store_uri)
    bases = worker_bases(base_cache_nbytes)
    entries: list[PackEntry] = []
    rows: list[dict[str, object]] = []
    failures: list[dict[str, object]] = []
    needed = {item.base.tensor_id for item in shard.items if item.base is not None}
    for item, take in zip(shard.items, read_ahead(map(_read_of, shard.items)), strict=True):
        source = item.target.location.source.source
        try:
            target = _take(item, take)
            if item.target.tensor_id in needed:
                bases.put((objects.uri, item.target), target)
            source = _base_source(item) or source
            base = _read_base(item, objects, bases)
        except SourceRejectedError as error:
            failures.append(_failure_row(item, source, error))
            continue
        fitting = None if base is None else resized(base, target.size)
        entry = _encode(item, target, fitting, standalone_codec)
        entries.append(entry)
        rows.append(_blob_row(item, entry))
    if entries:
        with spending("write", sum(len(entry.blob) for entry in entries)):
            pack = build_pack(entries)
            _publish(objects, pack)
        for row, offset in zip(rows, pack.offsets, strict=True):
            row.update(pack=pack.pack_id, offset=offset)
    return {
        "blobs": pa.Table.from_pylist(rows, BLOBS),
        "failures": pa.Table.from_pylist(failures, FAILURES),
    }


_Read: TypeAlias = Callable[[], NDArray[np.uint8]]


def _read_of(item: EncodeItem) -> tuple[str, int, _Read]:
    return item.target.location.source.source, item.nbytes, item.target.read


def _take(item: EncodeItem, take: _Read) -> NDArray[np.uint8]:
    """Bytes of the target; the wait for those that a thread reads counts as reading."""
    if not is_remote(item.target.location.source.source):
        return take()
    with spending("read", item.nbytes):
        return take()


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
    item: EncodeItem, objects: ObjectStore, bases: BaseCache
) -> NDArray[np.uint8] | None:
    base = item.base
    if base is None:
        return None
    key = objects.uri, base
    data = bases.get(key)
    if data is None:
        data = base.read() if isinstance(base, HubTensor) else _read_stored(base, objects)
        if data is not None:
            bases.put(key, data)
    return data


def _read_stored(base: BlobLocation, objects: ObjectStore) -> NDArray[np.uint8] | None:
    """A base from the store; None if it is damaged, which must not stop what is new."""
    try:
        with spending("read", base.raw_nbytes):
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
    with spending("encode", target.nbytes):
        blob = tstore_codecs.encode(target, dtype=item.dtype, codec=codec, shape=shape, base=base)
        if base is not None and len(blob) > _WORTH_TRYING_ALONE * item.alone_nbytes:
            alone = tstore_codecs.encode(
                target, dtype=item.dtype, codec=standalone_codec, shape=shape
            )
            if len(alone) <= len(blob):
                blob, codec, base, base_id = alone, standalone_codec, None, None
    with spending("verify", target.nbytes):
        same = np.array_equal(tstore_codecs.decode(blob, base=base), target)
    if not same:
        raise VerificationError(
            f"expected the {codec} blob of {item.target.tensor_id} to decode to its source bytes, "
            "found others; nothing of it was published, please report it with the tensor",
            tensor_id=item.target.tensor_id,
        )
    return PackEntry(item.target.tensor_id, blob, codec, base_id, content_hash(blob))


def rows_of_lost(shard: EncodeShard, error: WorkerLostError) -> dict[str, pa.Table]:
    """What is left of a tensor that no worker survives: its file counts as unreadable."""
    failures = [
        _failure_row(item, item.target.location.source.source, error) for item in shard.items
    ]
    return {
        "blobs": BLOBS.empty_table(),
        "failures": pa.Table.from_pylist(failures, FAILURES),
    }


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
