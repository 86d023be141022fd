"""One chunk as byte planes. FORMAT.md, "Planar chunk"."""

import numpy as np

from tstore_codecs.buffers import ByteArray, aligned_words, words_of
from tstore_codecs.dtypes import Dtype
from tstore_codecs.errors import CorruptBlobError
from tstore_codecs.kernels.planes import merge_planes, split_planes
from tstore_codecs.limits import MIN_PLANE_GAIN, MIN_WIDE_PLANE_GAIN
from tstore_codecs.plane import decode_plane, encode_plane, take


def split(chunk: ByteArray, width: int) -> ByteArray:
    """Return `chunk`, uint8 (n,), plane after plane of units of `width` bytes, then the tail."""
    body = chunk.size - chunk.size % width
    planes = chunk[:body].reshape(-1, width).T
    return np.concatenate((planes.reshape(-1), chunk[body:]))


def merge(planes: ByteArray, width: int) -> ByteArray:
    """Undo `split`."""
    body = planes.size - planes.size % width
    return np.concatenate((planes[:body].reshape(width, -1).T.reshape(-1), planes[body:]))


def encode_planes(chunk: ByteArray, dtype: Dtype, rotate: bool) -> bytes:
    """Return `chunk`, read-only uint8 (n,), as coded byte planes.

    Parameters
    ----------
    chunk
        Elements of `dtype`; the last one may be incomplete.
    dtype
        Gives the number of planes.
    rotate
        Rotate each element left by one bit first.
    """
    words = words_of(chunk, dtype)
    planes = np.empty((dtype.width, words.size), np.uint8)
    split_planes(words, rotate, planes)
    min_gain = MIN_PLANE_GAIN if dtype.width <= 2 else MIN_WIDE_PLANE_GAIN
    parts: list[bytes | memoryview] = [chunk[words.nbytes :].data]
    for plane in planes:
        parts += encode_plane(plane, min_gain)
    return b"".join(parts)


def decode_planes(payload: ByteArray, out: ByteArray, dtype: Dtype, rotate: bool) -> None:
    """Undo `encode_planes`: fill `out`, uint8 (n,), from all of `payload`.

    Raises
    ------
    CorruptBlobError
        If `payload` is not such a chunk.
    """
    n_words, at = divmod(out.size, dtype.width)
    body = out[: n_words * dtype.width]
    out[body.size :] = take(payload, 0, at)
    planes = np.empty((dtype.width, n_words), np.uint8)
    for plane in planes:
        at = decode_plane(payload, at, plane)
    if at != payload.size:
        raise CorruptBlobError(
            f"expected a chunk to end after its last plane; found {payload.size - at} bytes more"
        )
    with aligned_words(body, dtype) as words:
        merge_planes(planes, rotate, words)
