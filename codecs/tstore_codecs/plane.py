"""One byte plane of a chunk, coded the shortest of four ways. FORMAT.md, "Byte plane"."""

import struct

import numpy as np
import numpy.typing as npt

from tstore_codecs import entropy, zstd_frames
from tstore_codecs.buffers import ByteArray
from tstore_codecs.errors import CorruptBlobError
from tstore_codecs.kernels.planes import (
    ZERO_BLOCK_NBYTES,
    count_zero_blocks,
    has_zero_run,
    is_noise,
)
from tstore_codecs.limits import (
    CLUSTERED_ZEROS,
    LONG_ZERO_RUN,
    MANY_ZEROS,
    MIN_PLANE_GAIN,
    PLANE_ZSTD_LEVEL,
    SAMPLED_PLANE_NBYTES,
    SMALL_PLANE_NBYTES,
)
from tstore_codecs.tables import normalised

RAW, CONSTANT, RANS, ZSTD = range(4)

_STREAM_HEADER = struct.Struct("<BI")  # mode, length of the stream


def encode_plane(plane: ByteArray) -> list[bytes | memoryview]:
    """Return `plane`, uint8 (n,), as mode byte and payload in parts: at most n + 1 bytes."""
    raw: list[bytes | memoryview] = [bytes((RAW,)), plane.data]
    if not plane.size or (plane.size > SAMPLED_PLANE_NBYTES and is_noise(plane)):
        return raw
    counts = entropy.histogram(plane)
    if counts.max() == plane.size:
        return [bytes((CONSTANT, plane[0]))]
    limit = plane.size - int(MIN_PLANE_GAIN * plane.size) - _STREAM_HEADER.size
    mode, stream = _shortest(plane, counts, limit)
    if len(stream) > limit:
        return raw
    return [_STREAM_HEADER.pack(mode, len(stream)), stream]


def _shortest(
    plane: ByteArray, counts: npt.NDArray[np.int64], limit: int
) -> tuple[int, bytes | memoryview]:
    """Return mode and stream of `plane`, from its histogram; more than `limit` bytes if hopeless."""
    freqs = normalised(counts)
    expected = entropy.coded_nbytes(counts, freqs, plane.size)
    rival = None
    if _suits_zstd(plane, int(counts[0])):
        rival = zstd_frames.compress(plane, PLANE_ZSTD_LEVEL)
        if len(rival) <= min(expected, limit):
            return ZSTD, rival
    if expected > limit:
        return RAW, plane.data
    return RANS, entropy.encode_symbols(plane, freqs)


def _suits_zstd(plane: ByteArray, n_zeros: int) -> bool:
    """Say whether zstd may beat an order-0 coder on `plane` (after ZipNN, section IV-B).

    Many zeros alone do not tell: where they are scattered, the order-0 coder wins.
    """
    if plane.size <= SMALL_PLANE_NBYTES:
        return True
    share = n_zeros / plane.size
    if share > MANY_ZEROS:
        together = int(count_zero_blocks(plane)) * ZERO_BLOCK_NBYTES / plane.size
        return together > share**ZERO_BLOCK_NBYTES + CLUSTERED_ZEROS
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
