"""``stored``: the bytes as they are, the bound on every other codec."""

from typing import Final

from tstore_codecs.buffers import ByteArray
from tstore_codecs.dtypes import Dtype
from tstore_codecs.errors import CorruptBlobError


class Stored:
    """Leaves every chunk to the frame, which keeps it raw."""

    name: Final = "stored"
    wire_id: Final = 0
    needs_base: Final = False

    def encode_chunk(self, target: ByteArray, base: ByteArray, dtype: Dtype) -> bytes:
        """Return `target` unchanged."""
        return target.tobytes()

    def decode_chunk(
        self, payload: ByteArray, base: ByteArray, out: ByteArray, dtype: Dtype
    ) -> None:
        """Raise: a stored chunk is never shorter than its raw bytes."""
        raise CorruptBlobError(
            f"expected a stored chunk of {out.size} bytes; found {payload.size} bytes"
        )
