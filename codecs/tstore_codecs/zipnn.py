"""``zipnn``: a tensor alone, by byte planes (after ZipNN, section III).

Trained weights carry their redundancy in the exponent. Rotating the sign to the bottom gives the
exponent of a BF16 or F32 a byte of its own; planes of mantissa bits are then close to random and
stay raw.
"""

from typing import Final

from tstore_codecs.base import Model, WithoutModel
from tstore_codecs.buffers import ByteArray
from tstore_codecs.dtypes import Dtype
from tstore_codecs.planar import decode_planes, encode_planes


class ZipNN(WithoutModel):
    """Rotate floats, split, code each plane."""

    name: Final = "zipnn"
    wire_id: Final = 2
    needs_base: Final = False

    def encode_chunk(
        self, model: Model, start: int, target: ByteArray, base: ByteArray, dtype: Dtype
    ) -> bytes:
        """Return the coded planes of `target`."""
        return encode_planes(target, dtype, _rotates(dtype))

    def decode_chunk(
        self,
        model: Model,
        start: int,
        payload: ByteArray,
        base: ByteArray,
        out: ByteArray,
        dtype: Dtype,
    ) -> None:
        """Fill `out` from coded planes."""
        decode_planes(payload, out, dtype, _rotates(dtype))


def _rotates(dtype: Dtype) -> bool:
    return dtype.signed_float and dtype.width > 1
