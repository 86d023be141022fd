"""What a codec is."""

from typing import Protocol

from tstore_codecs.buffers import ByteArray
from tstore_codecs.dtypes import Dtype


class Codec(Protocol):
    """Codes one chunk at a time, without state: equal arguments give equal bytes.

    All arrays are flat uint8. Inputs are read-only, of any alignment, and never empty chunks.
    ``base`` has as many bytes as ``target`` if `needs_base`, else none.
    """

    @property
    def name(self) -> str:
        """What callers and catalogs call it."""

    @property
    def wire_id(self) -> int:
        """Its number inside a blob (u8); see `registry.ASSIGNED`."""

    @property
    def needs_base(self) -> bool:
        """Whether it codes against a base."""

    def encode_chunk(self, target: ByteArray, base: ByteArray, dtype: Dtype) -> bytes:
        """Return the payload of a chunk; if it is not shorter than `target`, it is not used."""

    def decode_chunk(
        self, payload: ByteArray, base: ByteArray, out: ByteArray, dtype: Dtype
    ) -> None:
        """Fill `out`; raise `CorruptBlobError` unless all of `payload` makes exactly `out`."""
