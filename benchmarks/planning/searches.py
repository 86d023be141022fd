"""Ways to find the most similar earlier tensor (TStore, §6.3).

Each keeps what it needs of the tensors it has seen. Work is in three parts, so that it can be
timed apart: `prepare` what one tensor is known by, `nearest` earlier one, `add` it.
"""

from __future__ import annotations

from collections import Counter
from math import isqrt
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from usearch.index import Index

from benchmarks.planning.bits import differing_bits
from benchmarks.planning.hub import ByteArray, UniqueTensor
from tstore.plan.costs import SketchCosts
from tstore.plan.problem import Ints
from tstore.settings import SketchSettings
from tstore.sketch.distances import distance, group_distances
from tstore.sketch.layout import SketchLayout
from tstore.sketch.tensorsketch import build

NOTHING = -1

PROJECTED = 2048
"""Numbers that a random projection keeps."""
TABLES, BITS_PER_KEY = 64, 16
"""Of LSH: relatives that differ in 5 % of the bits share a key in 44 % of the tables, unrelated
bf16 tensors (34 %) in 0.1 %."""


CANDIDATES = 8
"""Tensors that the approximate index proposes."""
BLOCK = 256
"""Tensors that ask at a time."""


class Search(Protocol):
    """Similarity search among the tensors of one group."""

    def prepare(self, tensor: UniqueTensor) -> Any:
        """Compute from the bytes what the tensor is known by."""

    def nearest(self, known_by: Any) -> int:
        """Return the number of the most similar tensor that was added, `NOTHING` if none is."""

    def add(self, known_by: Any) -> None:
        """Add a tensor; they are numbered from 0."""


class BruteForce:
    """Exact bit distance to each (Wang et al., ZipLLM)."""

    def __init__(self) -> None:
        self._seen: list[ByteArray] = []

    def prepare(self, tensor: UniqueTensor) -> ByteArray:
        """See `Search.prepare`."""
        return tensor.read()

    def nearest(self, known_by: ByteArray) -> int:
        """See `Search.nearest`."""
        return int(np.argmin([differing_bits(known_by, other) for other in self._seen]))

    def add(self, known_by: ByteArray) -> None:
        """See `Search.add`."""
        self._seen.append(known_by)


class RawHNSW:
    """HNSW over all bits of the tensors, under Hamming distance."""

    def __init__(self, nbytes: int) -> None:
        self._index = Index(ndim=8 * nbytes, metric="hamming", dtype="b1")

    def prepare(self, tensor: UniqueTensor) -> ByteArray:
        """See `Search.prepare`."""
        return np.array(tensor.read())

    def nearest(self, known_by: ByteArray) -> int:
        """See `Search.nearest`."""
        return _first(self._index, known_by)

    def add(self, known_by: ByteArray) -> None:
        """See `Search.add`."""
        self._index.add(len(self._index), known_by, threads=1)


class BitSampling:
    """LSH for Hamming distance: tables keyed by sampled bits (Indyk and Motwani; Gionis et al.).

    The tensor that shares most keys is the answer.
    """

    def __init__(self, nbytes: int) -> None:
        rng = np.random.default_rng(0)
        self._bits = rng.integers(0, 8 * nbytes, (TABLES, BITS_PER_KEY))
        self._tables: list[dict[bytes, list[int]]] = [{} for _ in range(TABLES)]
        self._count = 0

    def prepare(self, tensor: UniqueTensor) -> list[bytes]:
        """See `Search.prepare`."""
        data = tensor.read()
        bits = (data[self._bits >> 3] >> (self._bits & 7).astype(np.uint8)) & 1
        return [key.tobytes() for key in np.packbits(bits, axis=1)]

    def nearest(self, known_by: list[bytes]) -> int:
        """See `Search.nearest`."""
        shared: Counter[int] = Counter()
        for table, key in zip(self._tables, known_by, strict=True):
            shared.update(table.get(key, ()))
        return shared.most_common(1)[0][0] if shared else NOTHING

    def add(self, known_by: list[bytes]) -> None:
        """See `Search.add`."""
        for table, key in zip(self._tables, known_by, strict=True):
            table.setdefault(key, []).append(self._count)
        self._count += 1


class RandomProjection:
    """HNSW over random projections of the values (Johnson and Lindenstrauss).

    Very sparse ones (Li, Hastie and Church, 2006): of n values each number adds up sqrt(n) with
    random signs. A dense matrix for an embedding would have 24 billion entries.
    """

    def __init__(self, n_values: int) -> None:
        rng = np.random.default_rng(0)
        per_number = isqrt(n_values)
        self._positions = rng.integers(0, n_values, (PROJECTED, per_number))
        self._signs = rng.choice(np.array([-1, 1], np.float32), (PROJECTED, per_number))
        self._index = Index(ndim=PROJECTED, metric="l2sq", dtype="f32")

    def prepare(self, tensor: UniqueTensor) -> NDArray[np.float32]:
        """See `Search.prepare`."""
        values = floats(tensor.read(), tensor.dtype)
        projected: NDArray[np.float32] = (values[self._positions] * self._signs).sum(axis=1)
        return projected

    def nearest(self, known_by: NDArray[np.float32]) -> int:
        """See `Search.nearest`."""
        return _first(self._index, known_by)

    def add(self, known_by: NDArray[np.float32]) -> None:
        """See `Search.add`."""
        self._index.add(len(self._index), known_by, threads=1)


class Sketches:
    """TensorSketch: estimated bit distance to each, exactly."""

    def __init__(self, dtype: str, nbytes: int, capacity: int, settings: SketchSettings) -> None:
        self._settings, self._nbytes = settings, nbytes
        self._layout = SketchLayout.of(dtype, settings)
        self._seen = np.empty((capacity, settings.depth * settings.width), np.int16)
        self._count = 0

    def prepare(self, tensor: UniqueTensor) -> NDArray[np.int16]:
        """See `Search.prepare`."""
        return build(tensor.read(), tensor.dtype, self._settings)

    def nearest(self, known_by: NDArray[np.int16]) -> int:
        """See `Search.nearest`."""
        seen = self._seen[: self._count]
        p = group_distances(known_by[None], seen, self._layout, self._nbytes)
        return int(distance(p, self._layout)[0].argmin())

    def add(self, known_by: NDArray[np.int16]) -> None:
        """See `Search.add`."""
        self._seen[self._count] = known_by
        self._count += 1


class Predictions:
    """TensorSketch and TensorPred: the base with the smallest predicted delta, as an ingest asks.

    Tensors have to come in the order of the sketches of `costs`.
    """

    def __init__(self, costs: SketchCosts, settings: SketchSettings) -> None:
        self._costs, self._settings = costs, settings
        self._count = 0

    def prepare(self, tensor: UniqueTensor) -> NDArray[np.int16]:
        """See `Search.prepare`."""
        return build(tensor.read(), tensor.dtype, self._settings)

    def nearest(self, known_by: NDArray[np.int16]) -> int:
        """See `Search.nearest`."""
        return self._cheapest(np.arange(self._count))

    def add(self, known_by: NDArray[np.int16]) -> None:
        """See `Search.add`."""
        self._count += 1

    def _cheapest(self, candidates: Ints) -> int:
        if candidates.size == 0:
            return NOTHING
        ratios = self._costs.ratios(np.array([self._count]), candidates)
        return int(candidates[ratios[0].argmin()])


class BlockPredictions(Predictions):
    """The same answers, priced for `BLOCK` arrivals at a time: how FlexSplit asks."""

    _first = NOTHING

    def nearest(self, known_by: NDArray[np.int16]) -> int:
        """See `Search.nearest`."""
        first = self._count // BLOCK * BLOCK
        if first != self._first:
            block = np.arange(first, min(first + BLOCK, len(self._costs.sketches)))
            self._ratios = self._costs.ratios(block, np.arange(block[-1]))
            self._first = first
        return int(self._ratios[self._count - first, : self._count].argmin())


class IndexedPredictions(Predictions):
    """The same among candidates from the approximate index, as in large groups."""

    def nearest(self, known_by: NDArray[np.int16]) -> int:
        """See `Search.nearest`."""
        near = self._costs.near(np.array([self._count]), np.arange(self._count), CANDIDATES)[0]
        return self._cheapest(near[near >= 0])


def _first(index: Index, known_by: NDArray[Any]) -> int:
    keys = index.search(known_by, 1, threads=1).keys
    return int(keys[0]) if len(keys) else NOTHING


def floats(data: ByteArray, dtype: str) -> NDArray[np.float32]:
    """Values of a tensor of BF16, F16 or F32."""
    if dtype == "BF16":
        return (data.view("<u2").astype(np.uint32) << 16).view(np.float32)
    return data.view({"F16": "<f2", "F32": "<f4"}[dtype]).astype(np.float32)
