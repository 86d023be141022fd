"""The forms a chunk may take, whatever the codec. FORMAT.md, "Chunk"."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from tstore_codecs import planar, zstd_frames
from tstore_codecs.base import Codec, Model
from tstore_codecs.buffers import ByteArray, as_bytes
from tstore_codecs.dtypes import Dtype
from tstore_codecs.errors import CorruptBlobError
from tstore_codecs.limits import DELTA_ZSTD_LEVEL, OPAQUE_ZSTD_LEVEL


class Form(IntEnum):
    """How the payload of a chunk is to be read."""

    CODED = 0
    RAW = 1
    ZSTD = 2
    ZSTD_DELTA = 3


class Chunk(NamedTuple):
    """A chunk as it is stored."""

    form: Form
    payload: bytes | memoryview


def encode_chunk(
    codec: Codec,
    model: Model,
    start: int,
    target: ByteArray,
    base: ByteArray,
    dtype: Dtype,
    rivals: int | None,
) -> Chunk:
    """Return `target` in its shortest form.

    Parameters
    ----------
    codec, model, start, target, base, dtype
        As in `Codec.encode_chunk`.
    rivals
        If this is all of a small tensor, the bytes of its model: the general forms then compete
        with the coded one and its model. Else None: they are left out, they would rarely win.
    """
    if base.size and _equal(target, base):
        payload = _zstd_delta(target, base, dtype, DELTA_ZSTD_LEVEL)
        chunk, rivals = Chunk(Form.ZSTD_DELTA, payload), None
    else:
        chunk = Chunk(Form.CODED, codec.encode_chunk(model, start, target, base, dtype))
    nbytes = len(chunk.payload)
    if rivals is not None:
        nbytes += rivals
        for rival in _general_forms(target, base, dtype):
            if len(rival.payload) < nbytes:
                chunk, nbytes = rival, len(rival.payload)
    return chunk if nbytes < target.size else Chunk(Form.RAW, target.data)


def _equal(target: ByteArray, base: ByteArray) -> bool:
    """Say whether two chunks are equal; a look at the first bytes nearly always tells."""
    return np.array_equal(target[:1024], base[:1024]) and np.array_equal(target, base)


def _general_forms(target: ByteArray, base: ByteArray, dtype: Dtype) -> list[Chunk]:
    """Return `target` in the forms that need no codec."""
    forms = [Chunk(Form.ZSTD, zstd_frames.compress(target, OPAQUE_ZSTD_LEVEL))]
    if base.size:
        payload = _zstd_delta(target, base, dtype, OPAQUE_ZSTD_LEVEL)
        forms.append(Chunk(Form.ZSTD_DELTA, payload))
    return forms


def _zstd_delta(target: ByteArray, base: ByteArray, dtype: Dtype, level: int) -> bytes:
    planes = planar.split(as_bytes(target ^ base), dtype.width)
    return zstd_frames.compress(as_bytes(planes), level)


def decode_chunk(
    codec: Codec,
    model: Model,
    start: int,
    chunk: tuple[Form, ByteArray],
    base: ByteArray,
    out: ByteArray,
    dtype: Dtype,
) -> None:
    """Fill `out` from `chunk`.

    Raises
    ------
    CorruptBlobError
        Unless all of the chunk makes exactly `out`.
    """
    form, payload = chunk
    if form is Form.CODED:
        codec.decode_chunk(model, start, payload, base, out, dtype)
    elif form is Form.RAW:
        if payload.size != out.size:
            raise CorruptBlobError(f"expected {out.size} raw bytes; found {payload.size}")
        out[:] = payload
    elif form is Form.ZSTD:
        out[:] = zstd_frames.decompress(payload, out.size)
    else:
        if base.size != out.size:
            raise CorruptBlobError(f"codec {codec.name!r} has no base; found a delta to one")
        planes = zstd_frames.decompress(payload, out.size)
        np.bitwise_xor(planar.merge(planes, dtype.width), base, out=out)
