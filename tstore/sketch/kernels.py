"""The compiled loops behind TensorSketch and the byte statistics."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""Step of splitmix64: 2**64 over the golden ratio, odd."""
_MIX_A = np.uint64(0xBF58476D1CE4E5B9)
_MIX_B = np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31 = np.uint64(30), np.uint64(27), np.uint64(31)
_ONE = np.uint64(1)


@njit(nogil=True, cache=True)
def mix64(x: Any) -> Any:
    """Finaliser of splitmix64 on uint64 (a number or an array): all input bits move all others."""
    x = (x ^ (x >> _S30)) * _MIX_A
    x = (x ^ (x >> _S27)) * _MIX_B
    return x ^ (x >> _S31)


@njit(nogil=True, cache=True)
def _popcount(x: np.uint64) -> np.uint64:
    """Set bits of `x`; LLVM knows the idiom and emits one instruction."""
    count = np.uint64(0)
    while x:
        x &= x - _ONE
        count += _ONE
    return count


@njit(nogil=True, cache=True)
def _add_run(
    words: NDArray[np.uint64],
    table: NDArray[np.uint64],
    flip: np.uint64,
    buckets: NDArray[np.int64],
) -> None:
    """Add the signed bits of each word to the bucket of the same index."""
    for i in range(words.size):
        x = words[i]
        plus = _popcount(x & (table[i] ^ flip))
        buckets[i] += np.int64((plus << _ONE) - _popcount(x))


@njit(nogil=True, cache=True)
def accumulate(
    words: NDArray[np.uint64],
    first_word: int,
    table: NDArray[np.uint64],
    keys: NDArray[np.uint64],
    out: NDArray[np.int64],
) -> None:
    """Add the set bits of `words` to the sketch `out` (TStore, Algorithm 1).

    Word ``q`` of the tensor stands in column ``c = q mod w`` of stripe ``t = q // w``. In row
    ``r`` all its bits go to bucket ``(c + shift(r, t)) mod w``; bit ``k`` counts +1 where bit
    ``k`` of ``table[r, c] ^ flip(r, t)`` is set, else -1. Two words of one stripe never share a
    bucket, two bits of one word have independent bits of `table`, and two stripes independent
    flips: signs are pairwise independent within a bucket, which makes the estimate unbiased.
    The loop runs over contiguous memory and hashes once per stripe, not per word.

    Parameters
    ----------
    words : uint64 (n,)
        Consecutive words of the tensor, little-endian; need not be aligned.
    first_word : int
        Position of ``words[0]`` in the tensor.
    table : uint64 (d, w)
        Random sign bits per row and column.
    keys : uint64 (d,)
        One random key per row; the hashes of the stripes come from it.
    out : int64 (d, w)
        The sketch; added to in place.
    """
    depth, width = out.shape
    done = 0
    while done < words.size:
        stripe, column = divmod(first_word + done, width)
        taken = min(width - column, words.size - done)
        run = words[done : done + taken]
        for r in range(depth):
            flip = mix64(keys[r] + GOLDEN * np.uint64(stripe + 1))
            shift = np.int64(mix64(flip ^ keys[r]) % np.uint64(width))
            start = (column + shift) % width
            head = min(taken, width - start)  # words before the bucket index wraps
            signs = table[r, column : column + taken]
            _add_run(run[:head], signs[:head], flip, out[r, start : start + head])
            _add_run(run[head:], signs[head:], flip, out[r, : taken - head])
        done += taken


@njit(nogil=True, cache=True)
def plane_histograms(units: NDArray[np.uint8], rotate: bool, counts: NDArray[np.int64]) -> None:
    """Count the byte values of each plane of `units`, added to `counts`.

    Parameters
    ----------
    units : uint8 (n, width)
        Little-endian units of `width` bytes.
    rotate : bool
        Rotate each unit left by one bit first: the sign goes to the lowest bit, and the exponent
        of a float fills the top byte.
    counts : int64 (width, 256)
        Added to in place.
    """
    n, width = units.shape
    for plane in range(width):
        row = counts[plane]
        if rotate:
            for i in range(n):
                carry = units[i, plane - 1] >> 7  # plane -1 is the top byte: the sign
                row[((units[i, plane] << 1) & 0xFF) | carry] += 1
        else:
            for i in range(n):
                row[units[i, plane]] += 1
