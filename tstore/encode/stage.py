"""Stage 2: encode, decode again and compare, pack, publish."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import tstore_codecs
from tstore.activity import spending
from tstore.catalog.blobs import resized
from tstore.catalog.schema import BLOBS, FAILURES
from tstore.catalog.stored import StoredTensor
from tstore.encode.bases import BaseCache, worker_bases
from tstore.encode.pack import PackEntry, publish_entries
from tstore.encode.shards import EncodeItem, EncodeSetup, EncodeShard
from tstore.errors import (
    BlobDamagedError,
    BlobMissingError,
    SourceRejectedError,
    TStoreError,
    VerificationError,
    WorkerLostError,
)
from tstore.hub.location import HubTensor
from tstore.ids import content_hash, parse_tensor_id
from tstore.objects import open_objects
from tstore.objects.ahead import is_remote, read_ahead

_BAD_BLOB = BlobDamagedError, BlobMissingError
WORTH_TRYING_ALONE = 0.9
"""A delta above this share of the predicted standalone size is compared with the real one."""


def encode_shard(shard: EncodeShard, setup: EncodeSetup) -> dict[str, pa.Table]:
    """Publish one pack; rows ``blobs``, and ``failures`` for what could not be read.

    A delta that turns out larger than the tensor alone is stored alone.

    Raises
    ------
    VerificationError
        A blob did not decode to its source; the pack is not written.
    """
    objects = open_objects(setup.store_uri)
    bases = worker_bases(setup.base_cache_nbytes)
    entries: list[PackEntry] = []
    rows: list[dict[str, object]] = []
    failures: list[dict[str, object]] = []
    needed = {item.base.tensor_id for item in shard.items if item.base is not None}
    reads = (_read_of(item, bases) for item in shard.items)
    for item, take in zip(shard.items, read_ahead(reads), strict=True):
        source = item.target.place
        try:
            target = _take(item, take)
            if item.target.tensor_id in needed:
                bases.put(item.target, target)
            source = item.base.place if isinstance(item.base, HubTensor) else source
            base = _read_base(item, bases)
        except (SourceRejectedError, *_BAD_BLOB) as error:
            failures.append(_failure_row(item, source, error))
            continue
        fitting = None if base is None else resized(base, target.size)
        entry = _encode(item, target, fitting, setup.standalone_codec)
        entries.append(entry)
        rows.append(_blob_row(item, entry))
    publish_entries(objects, entries, rows, setup.generation)
    return {
        "blobs": pa.Table.from_pylist(rows, BLOBS),
        "failures": pa.Table.from_pylist(failures, FAILURES),
    }


_Read: TypeAlias = Callable[[], NDArray[np.uint8]]


def _read_of(item: EncodeItem, bases: BaseCache) -> tuple[str, int, _Read]:
    """Where, how much and how to read; what needs the cache of bases is read in its turn."""
    target = item.target
    if isinstance(target, StoredTensor):
        return "", item.nbytes, partial(target.read, partial(_cached, bases=bases))
    return target.place, item.nbytes, target.read


def _take(item: EncodeItem, take: _Read) -> NDArray[np.uint8]:
    """Bytes of the target; the wait for those that a thread reads counts as reading."""
    if isinstance(item.target, StoredTensor) or not is_remote(item.target.place):
        return take()
    with spending("read", item.nbytes):
        return take()


def _read_base(item: EncodeItem, bases: BaseCache) -> NDArray[np.uint8] | None:
    """The base; None if the store's copy is damaged, which must not stop what is new."""
    if item.base is None:
        return None
    try:
        return _cached(item.base, bases)
    except _BAD_BLOB:
        return None


def _cached(base: HubTensor | StoredTensor, bases: BaseCache) -> NDArray[np.uint8]:
    data = bases.get(base)
    if data is None:
        data = base.read()
        bases.put(base, data)
    return data


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
        if base is not None and len(blob) > WORTH_TRYING_ALONE * item.alone_nbytes:
            alone = tstore_codecs.encode(
                target, dtype=item.dtype, codec=standalone_codec, shape=shape
            )
            if len(alone) <= len(blob):
                blob, codec, base, base_id = alone, standalone_codec, None, None
    with spending("verify", target.nbytes):
        same = _same_bytes(tstore_codecs.decode(blob, base=base), target)
    if not same:
        raise VerificationError(
            f"expected the {codec} blob of {item.target.tensor_id} to decode to its source bytes, "
            "found others; nothing of it was published, please report it with the tensor",
            tensor_id=item.target.tensor_id,
        )
    return PackEntry(item.target.tensor_id, blob, codec, base_id, content_hash(blob))


def _same_bytes(a: NDArray[np.uint8], b: NDArray[np.uint8]) -> bool:
    """Word by word: NumPy writes a byte for each pair of elements that it compares."""
    words = a.size // 8 * 8
    return (
        a.size == b.size
        and np.array_equal(a[:words].view(np.uint64), b[:words].view(np.uint64))
        and np.array_equal(a[words:], b[words:])
    )


def rows_of_lost(shard: EncodeShard, error: WorkerLostError) -> dict[str, pa.Table]:
    """What is left of a tensor that no worker survives: its file counts as unreadable."""
    failures = [_failure_row(item, item.target.place, error) for item in shard.items]
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


def _failure_row(item: EncodeItem, source: str, error: TStoreError) -> dict[str, object]:
    return {
        "tensor_id": item.target.tensor_id,
        "source": source,
        "reason": type(error).__name__,
        "message": str(error),
    }
