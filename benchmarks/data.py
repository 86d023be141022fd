"""The tensors to measure on: a fine-tune beside its base, tensor by tensor and as one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors

ByteArray = npt.NDArray[np.uint8]

WIDTHS = {"BF16": 2, "F32": 4, "F8_E4M3": 1}
"""Bytes per element of the dtypes that are measured."""

FLAT_NBYTES = 64 << 20
"""Most bytes of the one tensor that is timed."""


@dataclass(frozen=True)
class Tensor:
    """A tensor and, if it is coded against one, its base.

    Attributes
    ----------
    dtype
        safetensors name; a key of `WIDTHS`.
    data, base
        uint8 (n,), read-only.
    """

    dtype: str
    shape: tuple[int, ...]
    data: ByteArray
    base: ByteArray | None = None

    @property
    def nbytes(self) -> int:
        """Raw bytes."""
        return self.data.size

    def alone(self) -> Tensor:
        """Return the same tensor without its base."""
        return Tensor(self.dtype, self.shape, self.data)


@dataclass(frozen=True)
class Pair:
    """All tensors that a fine-tune shares with its base by name, shape and dtype."""

    name: str
    tensors: list[Tensor]

    @property
    def dtype(self) -> str:
        """Return the dtype of its tensors."""
        return self.tensors[0].dtype

    @property
    def nbytes(self) -> int:
        """Raw bytes of the fine-tune."""
        return sum(tensor.nbytes for tensor in self.tensors)

    def bases(self) -> list[Tensor]:
        """Return the tensors of the base, alone."""
        return [Tensor(t.dtype, t.shape, t.base) for t in self.tensors if t.base is not None]


def flat(tensors: list[Tensor]) -> Tensor:
    """Return all `tensors`, up to `FLAT_NBYTES`, as one with the rows of the largest of them."""
    row = max(tensors, key=lambda tensor: tensor.nbytes).shape[-1]
    dtype = tensors[0].dtype
    width = row * WIDTHS[dtype]
    nbytes = min(sum(tensor.nbytes for tensor in tensors), FLAT_NBYTES) // width * width
    data = np.concatenate([tensor.data for tensor in tensors])[:nbytes]
    bases = [tensor.base for tensor in tensors if tensor.base is not None]
    base = np.concatenate(bases)[:nbytes] if bases else None
    return Tensor(dtype, (nbytes // width, row), data, base)


def read_pair(hub: Path, target: str, base: str) -> Pair:
    """Return the pair of two repositories of `hub`, named ``org/name``.

    Raises
    ------
    ValueError
        If they share no tensors of one dtype of `WIDTHS`.
    """
    theirs = dict(_read_repository(hub / base))
    tensors = []
    for name, ours in sorted(_read_repository(hub / target)):
        other = theirs.get(name)
        if other is not None and (other.dtype, other.shape) == (ours.dtype, ours.shape):
            tensors.append(Tensor(ours.dtype, ours.shape, ours.data, other.data))
    dtypes = sorted({tensor.dtype for tensor in tensors})
    if len(dtypes) != 1:
        raise ValueError(
            f"expected {target} and {base} to share tensors of one dtype of {', '.join(WIDTHS)}; "
            f"found {', '.join(dtypes) or 'none'}"
        )
    return Pair(target, tensors)


def _read_repository(path: Path) -> Iterator[tuple[str, Tensor]]:
    """Yield name and tensor of what is measured in the safetensors files of `path`."""
    files = sorted(path.glob("*.safetensors"))
    if not files:
        raise FileNotFoundError(f"expected safetensors files in {path}; found none")
    for file in files:
        raw = file.read_bytes()
        entries: list[tuple[str, dict[str, Any]]] = safetensors.deserialize(raw)  # type: ignore[no-untyped-call]
        for name, entry in entries:
            if entry["dtype"] in WIDTHS and entry["data"]:
                data = np.frombuffer(bytes(entry["data"]), np.uint8)
                yield name, Tensor(entry["dtype"], tuple(entry["shape"]), data)
