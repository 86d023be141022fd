"""One byte plane of a chunk, coded one of five ways. FORMAT.md, "Byte plane"."""

import struct

import numpy as np

from tstore_codecs import entropy, zstd_frames
from tstore_codecs.buffers import ByteArray
from tstore_codecs.errors import CorruptBlobError
from tstore_codecs.kernels.planes import (
    has_zero_run,
    is_noise,
    merge_sparse,
    split_sparse,
    zero_share,
)
from tstore_codecs.limits import (
    LONG_ZERO_RUN,
    MANY_ZEROS,
    PLANE_ZSTD_LEVEL,
    SAMPLED_PLANE_NBYTES,
    SMALL_PLANE_NBYTES,
)
from tstore_codecs.tables import normalised

RAW, CONSTANT, RANS, ZSTD, SPARSE = range(5)

_STREAM_HEADER = struct.Struct("<BI")  # mode, length of the stream

Parts = list[bytes | memoryview]


def encode_plane(plane: ByteArray, min_gain: float) -> Parts:
    """Return `plane`, uint8 (n,), as mode byte and payload in parts: at most n + 1 bytes.

    It stays raw unless coding saves `min_gain` of it.
    """
    if plane.size > SAMPLED_PLANE_NBYTES:
        if is_noise(plane, min_gain):
            return _raw(plane)
        if zero_share(plane) > MANY_ZEROS:
            return _encode_sparse(plane, min_gain)
    return _encode_dense(plane, min_gain)


def _raw(plane: ByteArray) -> Parts:
    return [bytes((RAW,)), plane.data]


def _encode_sparse(plane: ByteArray, min_gain: float) -> Parts:
    """Return `plane` as a bit per byte, whether it is not 0, and the bytes that are not.

    Both are coded as planes. That takes an eighth of the steps of the entropy coder, and no more
    bytes: eight bits that go together are one symbol.
    """
    masks = np.empty(-(-plane.size // 8), np.uint8)
    values = np.empty(plane.size + 8, np.uint8)
    values = values[: split_sparse(plane, masks, values)]
    if not values.size:
        return [bytes((CONSTANT, 0))]
    parts = [bytes((SPARSE,)), *_encode_dense(masks, min_gain), *_encode_dense(values, min_gain)]
    if sum(map(len, parts)) <= plane.size - int(min_gain * plane.size):
        return parts
    return _encode_dense(plane, min_gain)


def _encode_dense(plane: ByteArray, min_gain: float) -> Parts:
    """Return `plane` in a form other than sparse."""
    if not plane.size:
        return _raw(plane)
    counts = entropy.histogram(plane)
    if counts.max() == plane.size:
        return [bytes((CONSTANT, plane[0]))]
    limit = plane.size - int(min_gain * plane.size) - _STREAM_HEADER.size
    freqs = normalised(counts)
    expected = entropy.coded_nbytes(counts, freqs, plane.size)
    mode, stream = RAW, b""
    if _suits_zstd(plane, int(counts[0])):
        mode, stream = ZSTD, zstd_frames.compress(plane, PLANE_ZSTD_LEVEL)
    if expected <= limit and (mode == RAW or len(stream) > expected):
        mode, stream = RANS, entropy.encode_symbols(plane, freqs)
    if mode == RAW or len(stream) > limit:
        return _raw(plane)
    return [_STREAM_HEADER.pack(mode, len(stream)), stream]


def _suits_zstd(plane: ByteArray, n_zeros: int) -> bool:
    """Say whether zstd may beat an order-0 coder on `plane` (ZipNN, section IV-B)."""
    if plane.size <= SMALL_PLANE_NBYTES or n_zeros > MANY_ZEROS * plane.size:
        return True
    run = int(LONG_ZERO_RUN * plane.size)
    return n_zeros >= run and bool(has_zero_run(plane, run))


def decode_plane(payload: ByteArray, at: int, plane: ByteArray) -> int:
    """Fill `plane`, uint8 (n,), from ``payload[at:]``; return where the next plane starts.

    Raises
    ------
    CorruptBlobError
        If the bytes there are not a plane of n bytes.
    """
    if take(payload, at, 1)[0] != SPARSE:
        return _decode_dense(payload, at, plane)
    masks = np.empty(-(-plane.size // 8), np.uint8)
    at = _decode_dense(payload, at + 1, masks)
    n_values = int(np.bitwise_count(masks).sum(dtype=np.int64))
    if plane.size % 8 and masks[-1] >> plane.size % 8:
        raise CorruptBlobError(f"a sparse plane of {plane.size} bytes has a value beyond its end")
    values = np.zeros(n_values + 8, np.uint8)
    at = _decode_dense(payload, at, values[:n_values])
    merge_sparse(masks, values, plane)
    return at


def _decode_dense(payload: ByteArray, at: int, plane: ByteArray) -> int:
    """Do what `decode_plane` does, for any mode but sparse."""
    mode = int(take(payload, at, 1)[0])
    at += 1
    if mode == RAW:
        plane[:] = take(payload, at, plane.size)
        return at + plane.size
    if mode == CONSTANT:
        plane[:] = take(payload, at, 1)
        return at + 1
    if mode not in (RANS, ZSTD):
        raise CorruptBlobError(f"plane mode {mode} is unknown, or not allowed here")
    length = int.from_bytes(take(payload, at, 4).tobytes(), "little")
    stream = take(payload, at + 4, length)
    if mode == RANS:
        entropy.decode_symbols(stream, plane)
    else:
        plane[:] = zstd_frames.decompress(stream, plane.size)
    return at + 4 + length


def take(payload: ByteArray, at: int, nbytes: int) -> ByteArray:
    """Return `nbytes` bytes of `payload` from `at`, or raise `CorruptBlobError` if it ends."""
    if payload.size - at < nbytes:
        raise CorruptBlobError(
            f"expected {nbytes} bytes at offset {at} of a chunk; found {payload.size - at}"
        )
    return payload[at : at + nbytes]
