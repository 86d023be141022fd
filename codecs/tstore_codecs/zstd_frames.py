"""One zstd frame from and to bytes of known length."""

import threading

import zstandard

from tstore_codecs.buffers import ByteArray, as_bytes
from tstore_codecs.errors import CorruptBlobError
from tstore_codecs.limits import MAX_CHUNK_NBYTES


class _Contexts(threading.local):
    """What zstd allocates, kept: for a small tensor it takes longer than the work. One thread's."""

    def __init__(self) -> None:
        self.compressors: dict[int, zstandard.ZstdCompressor] = {}
        self.decompressor = zstandard.ZstdDecompressor()


_contexts = _Contexts()


def compress(data: ByteArray, level: int) -> bytes:
    """Return one zstd frame that holds `data` and states its length."""
    compressors = _contexts.compressors
    if level not in compressors:
        compressors[level] = zstandard.ZstdCompressor(level=level)
    return compressors[level].compress(data.data)


def decompress(frame: ByteArray, nbytes: int) -> ByteArray:
    """Return the `nbytes` bytes held by `frame`.

    Raises
    ------
    CorruptBlobError
        If `frame` is not exactly one zstd frame that holds `nbytes` bytes, at least one.
    """
    if nbytes == 0:
        raise CorruptBlobError("expected no zstd frame where there are no bytes; found one")
    try:
        # The library allocates whatever sizes the frame states, so they are compared first.
        stated = zstandard.get_frame_parameters(frame.data)
        if stated.content_size != nbytes or stated.window_size > MAX_CHUNK_NBYTES:
            raise CorruptBlobError(
                f"expected a zstd frame of {nbytes} bytes and a window up to {MAX_CHUNK_NBYTES}; "
                f"it states {stated.content_size} and {stated.window_size}"
            )
        data = _contexts.decompressor.decompress(frame.data, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise CorruptBlobError(f"expected a valid zstd frame; found: {error}") from error
    return as_bytes(data)
