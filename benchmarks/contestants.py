"""What is measured: the codecs of this project and their peers, behind one interface."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import tstore_codecs
from benchmarks.data import ByteArray, Tensor


@dataclass(frozen=True)
class Contestant:
    """One way to code a tensor.

    Attributes
    ----------
    encode
        Gets a tensor and what `prepare` returned for it; returns buffers.
    decode
        Gets those and the tensor, of which it uses dtype, size and base; returns its bytes.
    prepare
        What a caller would not pay for; not timed.
    """

    name: str
    encode: Callable[[Tensor, Any], Sequence[Any]]
    decode: Callable[[Sequence[Any], Tensor], Any]
    prepare: Callable[[Tensor], Any] = field(default=lambda tensor: None)


def stored_nbytes(coded: Sequence[Any]) -> int:
    """Return how many bytes the buffers of an encoder have together."""
    return sum(memoryview(part).nbytes for part in coded)


def check(contestant: Contestant, tensor: Tensor, decoded: Any) -> None:
    """Raise unless `decoded` is what was coded: nobody is timed who is not lossless."""
    if not np.array_equal(np.frombuffer(decoded, np.uint8), tensor.data):
        raise ValueError(f"expected {contestant.name} to return the {tensor.dtype} it was given")


def ours(codec: str, threads: int = 1) -> Contestant:
    """Return the codec of this project called `codec`."""

    def encode(tensor: Tensor, _: None) -> list[bytes]:
        blob = tstore_codecs.encode(
            tensor.data,
            dtype=tensor.dtype,
            codec=codec,
            shape=tensor.shape,
            base=tensor.base,
            threads=threads,
        )
        return [blob]

    def decode(coded: Sequence[Any], tensor: Tensor) -> ByteArray:
        return tstore_codecs.decode(coded[0], base=tensor.base, threads=threads)

    return Contestant(f"tstore {codec}" + f" × {threads}" * (threads > 1), encode, decode)
