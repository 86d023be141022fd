"""The frame around coded chunks: the one reader and writer of magic and version. FORMAT.md."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tstore_codecs.base import Codec
from tstore_codecs.buffers import AnyBuffer, ByteArray, as_bytes
from tstore_codecs.dtypes import Dtype, dtype_by_wire_id
from tstore_codecs.errors import CorruptBlobError, TruncatedBlobError, UnsupportedVersionError
from tstore_codecs.forms import Chunk, Form
from tstore_codecs.kernels.checksum import xxh64
from tstore_codecs.limits import CHUNK_ALIGNMENT, CHUNK_NBYTES, MAX_CHUNK_NBYTES
from tstore_codecs.registry import codec_by_wire_id

MAGIC: Final = b"\xa7TSB"
FORMAT_VERSION: Final = 1

_HEADER: Final = struct.Struct("<4s4BQII")
_CHECKSUM: Final = struct.Struct("<Q")
_HAS_BASE: Final = 1
_FORM_SHIFT: Final = 30
_ALONE: Final = np.dtype([("size", "<u4"), ("payload", "<u8"), ("target", "<u8")])
_WITH_BASE: Final = np.dtype([*_ALONE.descr, ("base", "<u8")])


@dataclass(frozen=True, slots=True)
class BlobInfo:
    """What a blob says about itself; sizes in bytes.

    `model_nbytes` is what the codec fitted to the whole tensor; each chunk needs it.
    """

    codec: str
    dtype: str
    raw_nbytes: int
    encoded_nbytes: int
    chunk_nbytes: int
    n_chunks: int
    model_nbytes: int
    needs_base: bool


class Checksums(NamedTuple):
    """The XXH64 of a chunk's payload, of its raw bytes and of those of the base (0: no base)."""

    payload: int
    target: int
    base: int


@dataclass(frozen=True, slots=True)
class Frame:
    """A blob taken apart: its structure and the checksum of its head hold; chunks are still coded.

    `starts` has the offset of each chunk in `blob` and the end of the last one.
    """

    info: BlobInfo
    codec: Codec
    dtype: Dtype
    model: ByteArray
    blob: ByteArray
    table: npt.NDArray[Any]
    forms: npt.NDArray[np.uint32]
    starts: npt.NDArray[np.int64]

    def raw_range(self, i: int) -> tuple[int, int]:
        """Return where the raw bytes of chunk `i` start and end."""
        start = i * self.info.chunk_nbytes
        return start, min(start + self.info.chunk_nbytes, self.info.raw_nbytes)

    def chunk(self, i: int) -> tuple[Form, ByteArray]:
        """Return form and payload of chunk `i`."""
        return Form(int(self.forms[i])), self.blob[self.starts[i] : self.starts[i + 1]]

    def checksums(self, i: int) -> Checksums:
        """Return what chunk `i` and its raw bytes must hash to."""
        entry = self.table[i]
        base = int(entry["base"]) if self.info.needs_base else 0
        return Checksums(int(entry["payload"]), int(entry["target"]), base)


class _Fields(NamedTuple):
    """The header's numbers as found."""

    codec_id: int
    dtype_id: int
    flags: int
    raw_nbytes: int
    chunk_nbytes: int
    model_nbytes: int


def checksum(data: AnyBuffer) -> int:
    """Return the XXH64 of `data`."""
    return int(xxh64(as_bytes(data)))


def max_encoded_nbytes(raw_nbytes: int) -> int:
    """Return the most bytes that a blob of `raw_nbytes` raw bytes has, whatever the codec."""
    n_chunks = -(-raw_nbytes // CHUNK_NBYTES)
    return _HEADER.size + _CHECKSUM.size + _WITH_BASE.itemsize * n_chunks + raw_nbytes


def write_frame(
    codec: Codec,
    dtype: Dtype,
    raw_nbytes: int,
    model: bytes,
    chunks: Sequence[Chunk],
    checksums: Sequence[Checksums],
) -> bytes:
    """Return the blob of `chunks`, each of `CHUNK_NBYTES` raw bytes but for the last."""
    flags = _HAS_BASE if codec.needs_base else 0
    ids = (FORMAT_VERSION, codec.wire_id, dtype.wire_id, flags)
    header = _HEADER.pack(MAGIC, *ids, raw_nbytes, CHUNK_NBYTES, len(model))
    table = np.empty(len(chunks), _WITH_BASE if codec.needs_base else _ALONE)
    table["size"] = [chunk.form << _FORM_SHIFT | len(chunk.payload) for chunk in chunks]
    table["payload"] = [sums.payload for sums in checksums]
    table["target"] = [sums.target for sums in checksums]
    if codec.needs_base:
        table["base"] = [sums.base for sums in checksums]
    head = b"".join((header, table.tobytes(), model))
    payloads = (chunk.payload for chunk in chunks)
    return b"".join((head, _CHECKSUM.pack(checksum(head)), *payloads))


def read_frame(blob: ByteArray) -> Frame:
    """Take `blob` apart; nothing is allocated in proportion to what it claims.

    Raises
    ------
    CorruptBlobError, TruncatedBlobError, UnsupportedVersionError
        If `blob` is not a whole blob of a known version with a sound head.
    UnsupportedDtypeError, UnknownCodecError
        If it names a dtype or codec that this build lacks.
    """
    fields = _read_header(blob)
    n_chunks = _count_chunks(fields)
    layout = _WITH_BASE if fields.flags & _HAS_BASE else _ALONE
    model_at = _HEADER.size + layout.itemsize * n_chunks
    head_nbytes = model_at + fields.model_nbytes
    _expect_nbytes(blob, head_nbytes + _CHECKSUM.size)
    _check_head(blob, head_nbytes)
    codec, dtype = codec_by_wire_id(fields.codec_id), dtype_by_wire_id(fields.dtype_id)
    if fields.flags != (_HAS_BASE if codec.needs_base else 0):
        raise CorruptBlobError(f"flags {fields.flags:#04x} do not go with codec {codec.name!r}")
    table = np.frombuffer(blob[_HEADER.size : model_at].tobytes(), layout)
    forms, sizes = np.divmod(table["size"], np.uint32(1 << _FORM_SHIFT))
    starts = np.full(n_chunks + 1, head_nbytes + _CHECKSUM.size, np.int64)
    starts[1:] += np.cumsum(sizes, dtype=np.int64)
    _check_chunks(blob, fields, forms, sizes, int(starts[-1]))
    info = BlobInfo(
        codec=codec.name,
        dtype=dtype.name,
        raw_nbytes=fields.raw_nbytes,
        encoded_nbytes=blob.size,
        chunk_nbytes=fields.chunk_nbytes,
        n_chunks=n_chunks,
        model_nbytes=fields.model_nbytes,
        needs_base=codec.needs_base,
    )
    return Frame(info, codec, dtype, blob[model_at:head_nbytes], blob, table, forms, starts)


def _read_header(blob: ByteArray) -> _Fields:
    """Return the header; raise if `blob` is no blob, of another version, or too short."""
    head = blob[: _HEADER.size].tobytes()
    if head[: len(MAGIC)] != MAGIC[: len(head)]:
        raise CorruptBlobError(f"expected a blob to begin with {MAGIC!r}; found {head[:4]!r}")
    _expect_nbytes(blob, _HEADER.size)
    _, version, *numbers = _HEADER.unpack(head)
    if version != FORMAT_VERSION:
        raise UnsupportedVersionError(
            f"this reader knows format version {FORMAT_VERSION}; the blob has version {version}: "
            "a newer tstore_codecs may read it",
            version=version,
        )
    return _Fields(*numbers)


def _count_chunks(fields: _Fields) -> int:
    chunk = fields.chunk_nbytes
    if not 0 < chunk <= MAX_CHUNK_NBYTES or chunk % CHUNK_ALIGNMENT:
        raise CorruptBlobError(
            f"expected a chunk size up to {MAX_CHUNK_NBYTES}, a multiple of {CHUNK_ALIGNMENT}; "
            f"found {chunk}"
        )
    return -(-fields.raw_nbytes // chunk)


def _expect_nbytes(blob: ByteArray, nbytes: int) -> None:
    if blob.size < nbytes:
        raise TruncatedBlobError(
            f"expected at least {nbytes} bytes; the blob has {blob.size}: fetch it again",
            expected=nbytes,
            found=blob.size,
        )


def _check_head(blob: ByteArray, head_nbytes: int) -> None:
    (stated,) = _CHECKSUM.unpack_from(blob[head_nbytes : head_nbytes + _CHECKSUM.size].tobytes())
    found = checksum(blob[:head_nbytes])
    if found != stated:
        raise CorruptBlobError(
            f"expected a blob whose head has checksum {stated:016x}; found {found:016x}: "
            "fetch it again"
        )


def _check_chunks(
    blob: ByteArray,
    fields: _Fields,
    forms: npt.NDArray[np.uint32],
    sizes: npt.NDArray[np.uint32],
    end: int,
) -> None:
    """Raise unless the blob ends after its last chunk and each has a sensible size.

    Then each chunk has paid for its table entry and one byte at least, for at most 1 MiB: see
    `limits.MAX_EXPANSION`.
    """
    _expect_nbytes(blob, end)
    if blob.size > end:
        raise CorruptBlobError(f"expected a blob of {end} bytes; found {blob.size}")
    longest = np.full(sizes.size, fields.chunk_nbytes, np.int64)
    longest[-1:] = fields.raw_nbytes - (sizes.size - 1) * fields.chunk_nbytes
    if np.any(sizes < 1) or np.any(sizes > longest):
        raise CorruptBlobError("a chunk is empty or longer than its raw bytes")
    if fields.model_nbytes and not np.any(forms == Form.CODED):
        raise CorruptBlobError(f"found a model of {fields.model_nbytes} bytes that no chunk needs")
