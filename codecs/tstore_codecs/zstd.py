"""``zstd``: for bytes of no known structure, such as headers, JSON and tokenizers."""

from typing import Final

from tstore_codecs import zstd_frames
from tstore_codecs.base import Model, WithoutModel
from tstore_codecs.buffers import ByteArray
from tstore_codecs.dtypes import Dtype
from tstore_codecs.limits import OPAQUE_ZSTD_LEVEL


class Zstd(WithoutModel):
    """One zstd frame per chunk."""

    name: Final = "zstd"
    wire_id: Final = 1
    needs_base: Final = False

    def encode_chunk(
        self, model: Model, start: int, target: ByteArray, base: ByteArray, dtype: Dtype
    ) -> bytes:
        """Return `target` as a zstd frame."""
        return zstd_frames.compress(target, OPAQUE_ZSTD_LEVEL)

    def decode_chunk(
        self,
        model: Model,
        start: int,
        payload: ByteArray,
        base: ByteArray,
        out: ByteArray,
        dtype: Dtype,
    ) -> None:
        """Fill `out` from a zstd frame."""
        out[:] = zstd_frames.decompress(payload, out.size)
