"""One chunk as byte planes. FORMAT.md, "Planar chunk"."""

import numpy as np

from tstore_codecs.buffers import ByteArray
from tstore_codecs.dtypes import Dtype
from tstore_codecs.errors import CorruptBlobError
from tstore_codecs.kernels.planes import merge_planes, split_planes
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
    body = chunk.size - chunk.size % dtype.width
    words = np.require(chunk[:body].view(f"<u{dtype.width}"), requirements="A")
    planes = np.empty((dtype.width, words.size), np.uint8)
    split_planes(words, rotate, planes)
    return b"".join((chunk[body:].tobytes(), *map(encode_plane, planes)))


def decode_planes(payload: ByteArray, nbytes: int, dtype: Dtype, rotate: bool) -> ByteArray:
    """Undo `encode_planes`: return the chunk of `nbytes` bytes that all of `payload` holds.

    Raises
    ------
    CorruptBlobError
        If `payload` is not such a chunk.
    """
    n_words, n_tail = divmod(nbytes, dtype.width)
    chunk = np.empty(nbytes, np.uint8)
    chunk[nbytes - n_tail :] = take(payload, 0, n_tail)
    at = n_tail
    planes = np.empty((dtype.width, n_words), np.uint8)
    for plane in planes:
        at = decode_plane(payload, at, plane)
    if at != payload.size:
        raise CorruptBlobError(
            f"expected a chunk to end after its last plane; found {payload.size - at} bytes more"
        )
    merge_planes(planes, rotate, chunk[: nbytes - n_tail].view(f"<u{dtype.width}"))
    return chunk
