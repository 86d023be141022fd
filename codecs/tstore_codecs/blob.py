"""Bytes to blobs and back."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import prod

import numpy as np
import numpy.typing as npt

from tstore_codecs import forms
from tstore_codecs.base import Codec, Mapper
from tstore_codecs.buffers import AnyBuffer, ByteArray, as_bytes, as_output
from tstore_codecs.dtypes import Dtype, dtype_by_name
from tstore_codecs.errors import (
    CorruptBlobError,
    MissingBaseError,
    OutOfRangeError,
    UnexpectedBaseError,
    UnsuitableBufferError,
    WrongBaseError,
    WrongShapeError,
)
from tstore_codecs.forms import Chunk, Form
from tstore_codecs.frame import BlobInfo, Checksums, Frame, checksum, read_frame, write_frame
from tstore_codecs.limits import CHUNK_NBYTES, SMALL_TENSOR_NBYTES
from tstore_codecs.registry import codec_by_name
from tstore_codecs.stored import Stored


def encode(
    target: AnyBuffer,
    *,
    dtype: str,
    codec: str,
    shape: Sequence[int] | None = None,
    base: AnyBuffer | None = None,
    threads: int = 1,
) -> bytes:
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
    shape
        Of the tensor. Codecs that look at rows compress better with it; none needs it.
    base
        Exactly as many bytes as `target`, for a codec that codes against a base; else None.
    threads
        At most so many work on chunks of 1 MiB side by side; below 2, the caller alone. The bytes
        do not depend on it.

    Returns
    -------
    bytes
        At most ``max_encoded_nbytes(n)`` of them; the same for equal arguments.

    Raises
    ------
    UnsupportedDtypeError, UnknownCodecError
        If `dtype` or `codec` is unknown.
    WrongShapeError
        If `shape` and `dtype` do not make as many bytes as `target` has.
    MissingBaseError, UnexpectedBaseError, WrongBaseError
        If `base` does not go with the codec or the target.
    """
    kind, coder = dtype_by_name(dtype), codec_by_name(codec)
    raw = as_bytes(target)
    row = _row_length(shape, kind, raw.size)
    reference = _matching_base(coder, base, raw.size)
    with _mapper(threads, raw.size) as mapper:
        model = coder.fit(raw, reference, kind, row, mapper)
        written = coder.write_model(model)
        competes = raw.size <= SMALL_TENSOR_NBYTES and not isinstance(coder, Stored)
        rivals = len(written) if competes else None

        def encode_one(start: int) -> tuple[Chunk, Checksums]:
            part = slice(start, start + CHUNK_NBYTES)
            ours, theirs = raw[part], reference[part]
            chunk = forms.encode_chunk(coder, model, start, ours, theirs, kind, rivals)
            sums = (checksum(chunk.payload), checksum(ours), checksum(theirs))
            return chunk, Checksums(*sums)

        coded = list(mapper(encode_one, range(0, raw.size, CHUNK_NBYTES)))
    chunks = [chunk for chunk, _ in coded]
    if all(chunk.form is not Form.CODED for chunk in chunks):
        written = b""
    return write_frame(coder, kind, raw.size, written, chunks, [sums for _, sums in coded])


def decode(
    blob: AnyBuffer,
    *,
    base: AnyBuffer | None = None,
    out: AnyBuffer | None = None,
    threads: int = 1,
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
        `blob` or `base`. After an error its contents are undefined.
    threads
        At most so many work on chunks of 1 MiB side by side.

    Returns
    -------
    uint8 (raw_nbytes,)
        New, or a view of `out`. Its checksums have been compared with those in the blob.

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
    encoded = as_bytes(blob)
    frame = read_frame(encoded)
    nbytes = frame.info.raw_nbytes
    reference = _matching_base(frame.codec, base, nbytes)
    if out is None:
        raw = np.empty(nbytes, np.uint8)
    else:
        raw = as_output(out, nbytes)
        if np.may_share_memory(raw, reference) or np.may_share_memory(raw, encoded):
            raise UnsuitableBufferError("expected out= apart from blob and base; they overlap")
    _decode_range(frame, reference, 0, raw, threads)
    return raw


def decode_range(
    blob: AnyBuffer, start: int, stop: int, *, base: AnyBuffer | None = None, threads: int = 1
) -> npt.NDArray[np.uint8]:
    """Return bytes `start` to `stop` of what `blob` was made from.

    Reads the head of the blob, the chunks of 1 MiB that hold these bytes, and the same parts of
    the base: buffers that are mapped from files are not read further. Parameters and errors are
    those of `decode`.

    Parameters
    ----------
    start, stop
        ``0 <= start <= stop <= raw_nbytes``.

    Returns
    -------
    uint8 (stop - start,)

    Raises
    ------
    OutOfRangeError
        If `start` and `stop` are no such range.
    """
    frame = read_frame(as_bytes(blob))
    nbytes = frame.info.raw_nbytes
    if not 0 <= start <= stop <= nbytes:
        raise OutOfRangeError(
            f"expected a range within the {nbytes} bytes of the tensor; found {start} to {stop}",
            nbytes=nbytes,
        )
    out = np.empty(stop - start, np.uint8)
    _decode_range(frame, _matching_base(frame.codec, base, nbytes), start, out, threads)
    return out


def inspect(blob: AnyBuffer) -> BlobInfo:
    """Return what the head of `blob` says; raises what `decode` raises for a bad head."""
    return read_frame(as_bytes(blob)).info


def _row_length(shape: Sequence[int] | None, dtype: Dtype, nbytes: int) -> int:
    """Return the elements (units of ``dtype.width``) per row of a tensor; 0 if it has no rows."""
    if shape is None:
        return 0
    shape = tuple(operator.index(length) for length in shape)
    if 8 * nbytes != prod(shape) * dtype.bits or any(length < 0 for length in shape):
        raise WrongShapeError(
            f"expected a shape of {nbytes} bytes of {dtype.name}; found {shape}",
            shape=shape,
        )
    return shape[-1] * dtype.bits // (8 * dtype.width) if len(shape) > 1 else 0


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


@contextlib.contextmanager
def _mapper(threads: int, nbytes: int) -> Iterator[Mapper]:
    """Yield a ``map`` that runs on up to `threads` threads; kernels leave the interpreter lock."""
    threads = min(threads, -(-nbytes // CHUNK_NBYTES))
    if threads < 2:
        yield map
        return
    with ThreadPoolExecutor(threads) as pool:
        yield pool.map


def _decode_range(frame: Frame, base: ByteArray, start: int, out: ByteArray, threads: int) -> None:
    """Fill `out` with the raw bytes from `start` on."""
    stop, size = start + out.size, frame.info.chunk_nbytes
    model = None
    touched = range(start // size, -(-stop // size)) if out.size else range(0)
    if any(frame.chunk(i)[0] is Form.CODED for i in touched):
        model = frame.codec.read_model(frame.model, frame.dtype, frame.info.raw_nbytes)

    def decode_span(span: range) -> None:
        for i in span:
            decode_one(i)

    def decode_one(i: int) -> None:
        first, end = frame.raw_range(i)
        if start <= first and end <= stop:
            _decode_chunk(frame, model, i, base[first:end], out[first - start : end - start])
        else:
            whole = np.empty(end - first, np.uint8)
            _decode_chunk(frame, model, i, base[first:end], whole)
            low, high = max(first, start), min(end, stop)
            out[low - start : high - start] = whole[low - first : high - first]

    # A foreign writer's chunks may be tiny: a thread takes about 1 MiB at a time.
    step = max(CHUNK_NBYTES // size, 1)
    with _mapper(threads, out.size) as mapper:
        for _ in mapper(decode_span, (touched[i : i + step] for i in range(0, len(touched), step))):
            pass


def _decode_chunk(frame: Frame, model: object, i: int, base: ByteArray, out: ByteArray) -> None:
    """Fill `out` from chunk `i`; compare every checksum."""
    chunk, expected = frame.chunk(i), frame.checksums(i)
    if checksum(chunk[1]) != expected.payload:
        raise CorruptBlobError(
            f"expected chunk {i} with checksum {expected.payload:016x}; "
            f"found {checksum(chunk[1]):016x}: fetch the blob again"
        )
    if frame.info.needs_base and checksum(base) != expected.base:
        raise WrongBaseError(
            f"expected a base whose chunk {i} has checksum {expected.base:016x}; "
            f"found {checksum(base):016x}: fetch the base this blob was coded against",
            expected=expected.base,
        )
    start = i * frame.info.chunk_nbytes
    forms.decode_chunk(frame.codec, model, start, chunk, base, out, frame.dtype)
    if checksum(out) != expected.target:
        raise CorruptBlobError(
            f"expected chunk {i} to decode to bytes with checksum {expected.target:016x}; "
            f"found {checksum(out):016x}"
        )
