"""Exact bit distances: the truth that sketches estimate."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
from numba import njit
from numpy.typing import NDArray

from benchmarks.planning.hub import ByteArray, Hub
from tstore.sketch.groups import SketchGroup

Counts = NDArray[np.int64]

_M1, _M2 = np.uint64(0x5555555555555555), np.uint64(0x3333333333333333)
_M4, _ONES = np.uint64(0x0F0F0F0F0F0F0F0F), np.uint64(0x0101010101010101)
_S1, _S2, _S4, _S56 = np.uint64(1), np.uint64(2), np.uint64(4), np.uint64(56)


@njit(nogil=True, cache=True)
def differing_words(a: NDArray[np.uint64], b: NDArray[np.uint64]) -> int:
    """Number of bits that differ in two arrays of equal length."""
    total = np.uint64(0)
    for i in range(a.size):
        x = a[i] ^ b[i]
        x = x - ((x >> _S1) & _M1)
        x = (x & _M2) + ((x >> _S2) & _M2)
        total += (((x + (x >> _S4)) & _M4) * _ONES) >> _S56
    return int(total)


def differing_bits(a: ByteArray, b: ByteArray) -> int:
    """Number of bits that differ in two tensors of equal size, at any alignment."""
    words = a.size // 8 * 8
    rest = int(np.bitwise_count(a[words:] ^ b[words:]).sum())
    return rest + int(differing_words(_words(a[:words]), _words(b[:words])))


def _words(data: ByteArray) -> NDArray[np.uint64]:
    words = np.asarray(data).view("<u8")
    words.flags.writeable = False  # one compiled variant for all callers
    return words


class BitDistances:
    """Distances between all tensors that may be bases of one another.

    Parameters
    ----------
    hub : Hub
    cache : Path
        Folder of what was compared before, by the ids of a group.
    """

    def __init__(self, hub: Hub, cache: Path) -> None:
        self._places: dict[str, tuple[Counts, int]] = {}
        for group in hub.groups:
            bits = _all_pairs(hub, group, cache)
            self._places.update({name: (bits, i) for i, name in enumerate(group.ids)})

    def of(self, group: SketchGroup) -> Counts:
        """Differing bits of all pairs, int64 (n, n), for tensors of one group of the hub."""
        bits = self._places[group.ids[0]][0]
        rows = [self._places[name][1] for name in group.ids]
        return bits[np.ix_(rows, rows)]

    def between(self, one: str, other: str) -> int | None:
        """Differing bits of two tensors; None if they are of different groups or of none."""
        if one not in self._places or other not in self._places:
            return None
        bits, i = self._places[one]
        others, j = self._places[other]
        return int(bits[i, j]) if others is bits else None


def _all_pairs(hub: Hub, group: SketchGroup, cache: Path) -> Counts:
    """Differing bits (n, n)."""
    key = hashlib.sha256("\n".join(group.ids).encode()).hexdigest()[:32]
    kept = cache / "bits" / f"{key}.npy"
    if kept.exists():
        known: Counts = np.load(kept)
        return known
    data = [hub.tensors[tensor_id].read() for tensor_id in group.ids]
    bits = np.zeros((len(data), len(data)), dtype=np.int64)
    for i, one in enumerate(data):
        for j, other in enumerate(data[:i]):
            bits[i, j] = bits[j, i] = differing_bits(one, other)
    kept.parent.mkdir(parents=True, exist_ok=True)
    np.save(kept, bits)
    return bits
