"""``bitx``: XOR with the base, a plane per bit field, zstd (TStore's baseline).

The fields of a float are its sign, its exponent and its mantissa; other elements are split into
bytes. Simple and slow: what the other delta codecs are measured against.
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tstore_codecs import zstd_frames
from tstore_codecs.base import Model, WithoutModel
from tstore_codecs.buffers import ByteArray, as_bytes, words_of
from tstore_codecs.dtypes import Dtype
from tstore_codecs.limits import DELTA_ZSTD_LEVEL


class BitX(WithoutModel):
    """Signs, exponents and mantissas of ``target ^ base`` in one zstd frame."""

    name: Final = "bitx"
    wire_id: Final = 3
    needs_base: Final = True

    def encode_chunk(
        self, model: Model, start: int, target: ByteArray, base: ByteArray, dtype: Dtype
    ) -> bytes:
        """Return a zstd frame of the fields of ``target ^ base``, field by field."""
        delta = as_bytes(target ^ base)
        words = words_of(delta, dtype)
        fields = [_pack(words, low, bits) for low, bits in _fields(dtype)]
        content = np.concatenate((*fields, delta[words.nbytes :]))
        return zstd_frames.compress(as_bytes(content), DELTA_ZSTD_LEVEL)

    def decode_chunk(
        self,
        model: Model,
        start: int,
        payload: ByteArray,
        base: ByteArray,
        out: ByteArray,
        dtype: Dtype,
    ) -> None:
        """Fill `out` from the fields ^ `base`."""
        n = out.size // dtype.width
        sizes = [_packed_nbytes(n, bits) for _, bits in _fields(dtype)]
        content = zstd_frames.decompress(payload, sum(sizes) + out.size - n * dtype.width)
        *fields, tail = np.split(content, np.cumsum(sizes))
        words = np.zeros(n, f"<u{dtype.width}")
        for (low, bits), field in zip(_fields(dtype), fields, strict=True):
            words |= _unpack(field, n, bits, words.dtype) << words.dtype.type(low)
        np.bitwise_xor(np.concatenate((words.view(np.uint8), tail)), base, out=out)


def _fields(dtype: Dtype) -> list[tuple[int, int]]:
    """Return lowest bit and number of bits of each field, from the top of an element down."""
    bits = 8 * dtype.width
    if not dtype.signed_float:
        return [(low, 8) for low in range(bits - 8, -8, -8)]
    mantissa = dtype.mantissa_bits
    return [(bits - 1, 1), (mantissa, bits - 1 - mantissa), (0, mantissa)]


def _packed_nbytes(n: int, bits: int) -> int:
    return -(-n // 8) if bits == 1 else n * -(-bits // 8)


def _pack(words: npt.NDArray[Any], low: int, bits: int) -> ByteArray:
    """Return `bits` bits of each word from `low` on: packed if one, else as byte planes."""
    kind = words.dtype.type
    field = (words >> kind(low)) & kind((1 << bits) - 1)
    if bits == 1:
        return np.packbits(field.astype(np.uint8), bitorder="little")
    planes = field.view(np.uint8).reshape(words.size, words.itemsize).T
    return as_bytes(planes[: -(-bits // 8)])


def _unpack(packed: ByteArray, n: int, bits: int, kind: np.dtype[Any]) -> npt.NDArray[Any]:
    """Undo `_pack`: return n words with the field at their bottom."""
    if bits == 1:
        return np.unpackbits(packed, count=n, bitorder="little").astype(kind)
    words = np.zeros((n, kind.itemsize), np.uint8)
    words[:, : -(-bits // 8)] = packed.reshape(-(-bits // 8), n).T
    field: npt.NDArray[Any] = words.view(kind).reshape(-1) & kind.type((1 << bits) - 1)
    return field
