"""``stored``: the bytes as they are, the bound on every other codec."""

from typing import Final

from tstore_codecs.base import Model, WithoutModel
from tstore_codecs.buffers import ByteArray
from tstore_codecs.dtypes import Dtype
from tstore_codecs.errors import CorruptBlobError


class Stored(WithoutModel):
    """Leaves every chunk to the frame, which keeps it raw."""

    name: Final = "stored"
    wire_id: Final = 0
    needs_base: Final = False

    def encode_chunk(
        self, model: Model, start: int, target: ByteArray, base: ByteArray, dtype: Dtype
    ) -> bytes:
        """Return `target` unchanged."""
        return target.tobytes()

    def decode_chunk(
        self,
        model: Model,
        start: int,
        payload: ByteArray,
        base: ByteArray,
        out: ByteArray,
        dtype: Dtype,
    ) -> None:
        """Raise: the frame decodes raw chunks."""
        raise CorruptBlobError("expected chunks of a stored blob to be raw; found a coded one")
