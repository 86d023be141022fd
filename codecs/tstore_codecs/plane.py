"""One byte plane of a chunk, coded the shortest of four ways. FORMAT.md, "Byte plane"."""

import struct

from tstore_codecs import entropy, zstd_frames
from tstore_codecs.buffers import ByteArray
from tstore_codecs.errors import CorruptBlobError
from tstore_codecs.kernels.planes import has_zero_run
from tstore_codecs.limits import (
    LONG_ZERO_RUN,
    MANY_ZEROS,
    MIN_PLANE_GAIN,
    PLANE_ZSTD_LEVEL,
    SMALL_PLANE_NBYTES,
)

RAW, CONSTANT, RANS, ZSTD = range(4)

_STREAM_HEADER = struct.Struct("<BI")  # mode, length of the stream


def encode_plane(plane: ByteArray) -> bytes:
    """Return `plane`, uint8 (n,), as a mode byte and its payload: at most n + 1 bytes."""
    if not plane.size:
        return bytes((RAW,))
    counts = entropy.histogram(plane)
    if counts.max() == plane.size:
        return bytes((CONSTANT, plane[0]))
    limit = plane.size - int(MIN_PLANE_GAIN * plane.size) - _STREAM_HEADER.size
    streams = []
    stream = entropy.encode_symbols(plane, counts, limit)
    if stream is not None:
        streams.append((RANS, stream))
    if _suits_zstd(plane, int(counts[0])):
        streams.append((ZSTD, zstd_frames.compress(plane, PLANE_ZSTD_LEVEL)))
    if streams:
        mode, stream = min(streams, key=lambda coded: len(coded[1]))
        if len(stream) <= limit:
            return _STREAM_HEADER.pack(mode, len(stream)) + stream
    return bytes((RAW,)) + plane.tobytes()


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
    mode = int(take(payload, at, 1)[0])
    at += 1
    if mode == RAW:
        plane[:] = take(payload, at, plane.size)
        return at + plane.size
    if mode == CONSTANT:
        plane[:] = take(payload, at, 1)
        return at + 1
    if mode not in (RANS, ZSTD):
        raise CorruptBlobError(f"expected a plane mode from 0 to 3; found {mode}")
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
