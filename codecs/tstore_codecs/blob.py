"""Bytes to blobs and back."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tstore_codecs.base import Codec
from tstore_codecs.buffers import AnyBuffer, ByteArray, as_bytes, as_output
from tstore_codecs.dtypes import dtype_by_name
from tstore_codecs.errors import (
    CorruptBlobError,
    MissingBaseError,
    UnexpectedBaseError,
    UnsuitableBufferError,
    WrongBaseError,
)
from tstore_codecs.frame import BlobInfo, Frame, checksum, read_frame, write_frame
from tstore_codecs.limits import CHUNK_NBYTES
from tstore_codecs.registry import codec_by_name


def encode(target: AnyBuffer, *, dtype: str, codec: str, base: AnyBuffer | None = None) -> bytes:
    """Return `target` as a blob.

    Parameters
    ----------
    target
        Any buffer; only its bytes count. Read-only, unaligned and empty ones are fine, also
        ones whose size is no multiple of the element.
    dtype
        Type of the elements by its safetensors name, or ``"OPAQUE"``.
    codec
        One of `available()`.
    base
        Exactly as many bytes as `target`, for a codec that codes against a base; else None.

    Returns
    -------
    bytes
        At most ``max_encoded_nbytes(n)`` of them; the same for equal arguments.

    Raises
    ------
    UnsupportedDtypeError, UnknownCodecError
        If `dtype` or `codec` is unknown.
    MissingBaseError, UnexpectedBaseError, WrongBaseError
        If `base` does not go with the codec or the target.
    """
    kind, coder = dtype_by_name(dtype), codec_by_name(codec)
    raw = as_bytes(target)
    reference = _matching_base(coder, base, raw.size)
    parts: list[bytes | memoryview] = []
    for start in range(0, raw.size, CHUNK_NBYTES):
        chunk = raw[start : start + CHUNK_NBYTES]
        coded = coder.encode_chunk(chunk, reference[start : start + CHUNK_NBYTES], kind)
        parts.append(coded if len(coded) < chunk.size else chunk.data)
    return write_frame(coder, kind, raw, reference, parts)


def decode(
    blob: AnyBuffer, *, base: AnyBuffer | None = None, out: AnyBuffer | None = None
) -> npt.NDArray[np.uint8]:
    """Return the bytes that `blob` was made from.

    Parameters
    ----------
    blob
        What `encode` returned, in any buffer.
    base
        The bytes of the base it was coded against, or None if it has none.
    out
        Writable contiguous buffer of exactly ``raw_nbytes``, filled in place. It may not overlap
        `base`. After an error its contents are undefined.

    Returns
    -------
    uint8 (raw_nbytes,)
        New, or a view of `out`. Its checksum has been compared with the one in the blob.

    Raises
    ------
    CorruptBlobError, TruncatedBlobError, UnsupportedVersionError
        If `blob` is not a whole, sound blob of a known version.
    UnsupportedDtypeError, UnknownCodecError
        If it names a dtype or codec that this build lacks.
    MissingBaseError, UnexpectedBaseError, WrongBaseError
        If `base` is not what the blob was coded against.
    UnsuitableBufferError
        If `out` cannot take the result.
    """
    frame = read_frame(as_bytes(blob))
    info = frame.info
    reference = _matching_base(frame.codec, base, info.raw_nbytes)
    if info.needs_base and checksum(reference) != info.base_checksum:
        raise WrongBaseError(
            f"expected a base with checksum {info.base_checksum:016x}; "
            f"found {checksum(reference):016x}: fetch the base this blob was coded against",
            expected=info.base_checksum,
        )
    if out is None:
        raw = np.empty(info.raw_nbytes, np.uint8)
    else:
        raw = as_output(out, info.raw_nbytes)
        if np.may_share_memory(raw, reference):
            raise UnsuitableBufferError("expected out= apart from the base; they overlap")
    _decode_chunks(frame, reference, raw)
    if checksum(raw) != info.target_checksum:
        raise CorruptBlobError(
            f"expected decoded bytes with checksum {info.target_checksum:016x}; "
            f"found {checksum(raw):016x}"
        )
    return raw


def inspect(blob: AnyBuffer) -> BlobInfo:
    """Return what `blob` says about itself; raises what `decode` raises for a bad blob."""
    return read_frame(as_bytes(blob)).info


def _matching_base(codec: Codec, base: AnyBuffer | None, nbytes: int) -> ByteArray:
    """Return the bytes of `base`, none if `codec` needs none; raise if it does not fit."""
    if not codec.needs_base:
        if base is not None:
            raise UnexpectedBaseError(f"codec {codec.name!r} uses no base; found one: leave it out")
        return np.empty(0, np.uint8)
    if base is None:
        raise MissingBaseError(f"codec {codec.name!r} codes against a base; found none")
    reference = as_bytes(base)
    if reference.size != nbytes:
        raise WrongBaseError(
            f"expected a base of {nbytes} bytes; found {reference.size}",
            expected=nbytes,
            found=reference.size,
        )
    return reference


def _decode_chunks(frame: Frame, base: ByteArray, raw: ByteArray) -> None:
    """Fill `raw` from the chunks of `frame`."""
    at = 0
    for i, size in enumerate(frame.sizes.tolist()):
        part = slice(i * frame.info.chunk_nbytes, (i + 1) * frame.info.chunk_nbytes)
        payload, out = frame.chunks[at : at + size], raw[part]
        if size == out.size:
            out[:] = payload
        else:
            frame.codec.decode_chunk(payload, base[part], out, frame.dtype)
        at += size
