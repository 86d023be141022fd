"""One zstd frame from and to bytes of known length."""

import zstandard

from tstore_codecs.buffers import ByteArray, as_bytes
from tstore_codecs.errors import CorruptBlobError
from tstore_codecs.limits import MAX_CHUNK_NBYTES


def compress(data: ByteArray, level: int) -> bytes:
    """Return one zstd frame that holds `data` and states its length."""
    return zstandard.ZstdCompressor(level=level).compress(data.data)


def decompress(frame: ByteArray, nbytes: int) -> ByteArray:
    """Return the `nbytes` bytes held by `frame`.

    Raises
    ------
    CorruptBlobError
        If `frame` is not exactly one zstd frame that holds `nbytes` bytes.
    """
    try:
        # The library allocates whatever size the frame states, so that is compared first.
        stated = zstandard.frame_content_size(frame.data)
        if stated != nbytes:
            raise CorruptBlobError(
                f"expected a zstd frame of {nbytes} bytes; the frame states {stated}"
            )
        reader = zstandard.ZstdDecompressor(max_window_size=MAX_CHUNK_NBYTES)
        data = reader.decompress(frame.data, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise CorruptBlobError(f"expected a valid zstd frame; found: {error}") from error
    if len(data) != nbytes:
        raise CorruptBlobError(f"expected {nbytes} bytes in a zstd frame; found {len(data)}")
    return as_bytes(data)
