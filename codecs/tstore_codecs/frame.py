"""The frame around coded chunks: the one reader and writer of magic and version. FORMAT.md."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from tstore_codecs.base import Codec
from tstore_codecs.buffers import ByteArray, as_bytes
from tstore_codecs.dtypes import Dtype, dtype_by_wire_id
from tstore_codecs.errors import CorruptBlobError, TruncatedBlobError, UnsupportedVersionError
from tstore_codecs.kernels.checksum import xxh64
from tstore_codecs.limits import CHUNK_ALIGNMENT, CHUNK_NBYTES, MAX_CHUNK_NBYTES
from tstore_codecs.registry import codec_by_wire_id

MAGIC: Final = b"\xa7TSB"
FORMAT_VERSION: Final = 1

_HEADER: Final = struct.Struct("<4s4BQIIQ")
_CHECKSUM: Final = struct.Struct("<Q")
_SIZE: Final = np.dtype("<u4")
_HAS_BASE: Final = 1


@dataclass(frozen=True, slots=True)
class BlobInfo:
    """What a blob says about itself; sizes in bytes, checksums are XXH64.

    `base_checksum` is 0 for a codec without base.
    """

    codec: str
    dtype: str
    raw_nbytes: int
    encoded_nbytes: int
    chunk_nbytes: int
    n_chunks: int
    needs_base: bool
    base_checksum: int
    target_checksum: int


@dataclass(frozen=True, slots=True)
class Frame:
    """A blob taken apart: structure and checksum hold, the chunks are still coded."""

    info: BlobInfo
    codec: Codec
    dtype: Dtype
    sizes: npt.NDArray[np.uint32]
    chunks: ByteArray


@dataclass(frozen=True, slots=True)
class _Fields:
    """The header's numbers as found, and the array of chunk sizes."""

    codec_id: int
    dtype_id: int
    flags: int
    raw_nbytes: int
    chunk_nbytes: int
    n_chunks: int
    target_checksum: int
    base_checksum: int
    sizes: npt.NDArray[np.uint32]
    chunks_at: int


def checksum(data: ByteArray) -> int:
    """Return the XXH64 of `data`."""
    return int(xxh64(as_bytes(data)))


def max_encoded_nbytes(raw_nbytes: int) -> int:
    """Return the most bytes that a blob of `raw_nbytes` raw bytes has, whatever the codec."""
    n_chunks = -(-raw_nbytes // CHUNK_NBYTES)
    return _HEADER.size + 2 * _CHECKSUM.size + _SIZE.itemsize * n_chunks + raw_nbytes


def write_frame(
    codec: Codec, dtype: Dtype, raw: ByteArray, base: ByteArray, parts: Sequence[bytes | memoryview]
) -> bytes:
    """Return the blob of `raw`, whose chunks of `CHUNK_NBYTES` are coded as `parts`."""
    flags = _HAS_BASE if codec.needs_base else 0
    ids = (FORMAT_VERSION, codec.wire_id, dtype.wire_id, flags)
    head = _HEADER.pack(MAGIC, *ids, raw.size, CHUNK_NBYTES, len(parts), checksum(raw))
    if codec.needs_base:
        head += _CHECKSUM.pack(checksum(base))
    sizes = np.array([len(part) for part in parts], _SIZE)
    content = b"".join((head, sizes.tobytes(), *parts))
    return content + _CHECKSUM.pack(checksum(as_bytes(content)))


def read_frame(blob: ByteArray) -> Frame:
    """Take `blob` apart; nothing is allocated in proportion to what it claims.

    Raises
    ------
    CorruptBlobError, TruncatedBlobError, UnsupportedVersionError
        If `blob` is not a whole, sound blob of a known version.
    UnsupportedDtypeError, UnknownCodecError
        If it names a dtype or codec that this build lacks.
    """
    fields = _read_fields(blob)
    _check_length(blob, fields)
    _check_checksum(blob)
    codec, dtype = codec_by_wire_id(fields.codec_id), dtype_by_wire_id(fields.dtype_id)
    if fields.flags != (_HAS_BASE if codec.needs_base else 0):
        raise CorruptBlobError(f"flags {fields.flags:#04x} do not go with codec {codec.name!r}")
    _check_chunks(fields)
    info = BlobInfo(
        codec=codec.name,
        dtype=dtype.name,
        raw_nbytes=fields.raw_nbytes,
        encoded_nbytes=blob.size,
        chunk_nbytes=fields.chunk_nbytes,
        n_chunks=fields.n_chunks,
        needs_base=codec.needs_base,
        base_checksum=fields.base_checksum,
        target_checksum=fields.target_checksum,
    )
    chunks = blob[fields.chunks_at : blob.size - _CHECKSUM.size]
    return Frame(info, codec, dtype, fields.sizes, chunks)


def _read_fields(blob: ByteArray) -> _Fields:
    """Read header and chunk table; raise if it is no blob, of another version, or too short."""
    head = blob[: _HEADER.size].tobytes()
    if head[: len(MAGIC)] != MAGIC[: len(head)]:
        raise CorruptBlobError(f"expected a blob to begin with {MAGIC!r}; found {head[:4]!r}")
    _expect_nbytes(blob, _HEADER.size)
    _, version, *ids, raw_nbytes, chunk_nbytes, n_chunks, target_checksum = _HEADER.unpack(head)
    if version != FORMAT_VERSION:
        raise UnsupportedVersionError(
            f"this reader knows format version {FORMAT_VERSION}; the blob has version {version}: "
            "a newer tstore_codecs may read it",
            version=version,
        )
    codec_id, dtype_id, flags = ids
    at, base_checksum = _HEADER.size, 0
    if flags & _HAS_BASE:
        _expect_nbytes(blob, at + _CHECKSUM.size)
        (base_checksum,) = _CHECKSUM.unpack_from(blob.data, at)
        at += _CHECKSUM.size
    chunks_at = at + _SIZE.itemsize * n_chunks
    _expect_nbytes(blob, chunks_at)
    sizes = np.frombuffer(blob[at:chunks_at].tobytes(), _SIZE)
    return _Fields(
        codec_id=codec_id,
        dtype_id=dtype_id,
        flags=flags,
        raw_nbytes=raw_nbytes,
        chunk_nbytes=chunk_nbytes,
        n_chunks=n_chunks,
        target_checksum=target_checksum,
        base_checksum=base_checksum,
        sizes=sizes,
        chunks_at=chunks_at,
    )


def _expect_nbytes(blob: ByteArray, nbytes: int) -> None:
    if blob.size < nbytes:
        raise TruncatedBlobError(
            f"expected at least {nbytes} bytes; the blob has {blob.size}: fetch it again",
            expected=nbytes,
            found=blob.size,
        )


def _check_length(blob: ByteArray, fields: _Fields) -> None:
    """Raise unless the blob ends right after its last chunk and the checksum."""
    nbytes = fields.chunks_at + int(fields.sizes.sum(dtype=np.int64)) + _CHECKSUM.size
    _expect_nbytes(blob, nbytes)
    if blob.size > nbytes:
        raise CorruptBlobError(f"expected a blob of {nbytes} bytes; found {blob.size}")


def _check_checksum(blob: ByteArray) -> None:
    content, trailer = blob[: -_CHECKSUM.size], blob[-_CHECKSUM.size :]
    (stated,) = _CHECKSUM.unpack(trailer.tobytes())
    found = checksum(content)
    if found != stated:
        raise CorruptBlobError(
            f"expected a blob with checksum {stated:016x}; found {found:016x}: fetch it again"
        )


def _check_chunks(fields: _Fields) -> None:
    """Raise unless the chunk sizes can make `raw_nbytes`.

    Then each chunk has paid at least five bytes for at most 1 MiB, so the blob bounds what its
    raw bytes may take: see `limits.MAX_EXPANSION`.
    """
    chunk, raw = fields.chunk_nbytes, fields.raw_nbytes
    if not 0 < chunk <= MAX_CHUNK_NBYTES or chunk % CHUNK_ALIGNMENT:
        raise CorruptBlobError(
            f"expected a chunk size up to {MAX_CHUNK_NBYTES}, a multiple of {CHUNK_ALIGNMENT}; "
            f"found {chunk}"
        )
    if fields.n_chunks != -(-raw // chunk):
        raise CorruptBlobError(
            f"expected {-(-raw // chunk)} chunks for {raw} bytes; found {fields.n_chunks}"
        )
    longest = np.full(fields.n_chunks, chunk, np.int64)
    longest[-1:] = raw - (fields.n_chunks - 1) * chunk
    if np.any(fields.sizes < 1) or np.any(fields.sizes > longest):
        raise CorruptBlobError("a chunk is empty or longer than its raw bytes")
