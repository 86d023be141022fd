"""What a codec is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, TypeAlias, TypeVar

from tstore_codecs.buffers import ByteArray
from tstore_codecs.dtypes import Dtype
from tstore_codecs.errors import CorruptBlobError

_In = TypeVar("_In")
_Out = TypeVar("_Out")


class Mapper(Protocol):
    """``map``, or that of a pool of threads."""

    def __call__(self, function: Callable[[_In], _Out], items: Iterable[_In], /) -> Iterator[_Out]:
        """Return the results of `function` for `items`, in order."""


Model: TypeAlias = Any
"""What a codec fits to a whole tensor; only the codec that made it looks inside."""


class Codec(Protocol):
    """Fits a model to a tensor, then codes chunk by chunk: equal arguments give equal bytes.

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

    def fit(
        self, target: ByteArray, base: ByteArray, dtype: Dtype, row: int, mapper: Mapper
    ) -> Model:
        """Return the model of a whole tensor, whose rows have `row` elements (0: unknown)."""

    def write_model(self, model: Model) -> bytes:
        """Return `model` as the bytes that `read_model` takes."""

    def read_model(self, data: ByteArray, dtype: Dtype, raw_nbytes: int) -> Model:
        """Return the model of a tensor; raise `CorruptBlobError` unless `data` is exactly one."""

    def encode_chunk(
        self, model: Model, start: int, target: ByteArray, base: ByteArray, dtype: Dtype
    ) -> bytes:
        """Return the payload of a chunk; if it is not shorter than `target`, it is not used.

        `start` is where the chunk lies in its tensor, in bytes.
        """

    def decode_chunk(
        self,
        model: Model,
        start: int,
        payload: ByteArray,
        base: ByteArray,
        out: ByteArray,
        dtype: Dtype,
    ) -> None:
        """Fill `out`; raise `CorruptBlobError` unless all of `payload` makes exactly `out`."""


class WithoutModel:
    """The part of a codec that fits nothing."""

    def fit(
        self, target: ByteArray, base: ByteArray, dtype: Dtype, row: int, mapper: Mapper
    ) -> None:
        """Fit nothing."""

    def write_model(self, model: Model) -> bytes:
        """Return no bytes."""
        return b""

    def read_model(self, data: ByteArray, dtype: Dtype, raw_nbytes: int) -> None:
        """Raise unless there are no bytes."""
        if data.size:
            raise CorruptBlobError(f"expected no model; found {data.size} bytes of one")
