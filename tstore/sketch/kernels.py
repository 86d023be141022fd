"""The compiled loops behind TensorSketch and the byte statistics."""

from __future__ import annotations

import numpy as np
from numba import njit

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_A = np.uint64(0xBF58476D1CE4E5B9)
_MIX_B = np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31 = np.uint64(30), np.uint64(27), np.uint64(31)
_S6, _LOW6, _BITS = np.uint64(6), np.uint64(63), np.uint64(64)
_ONE = np.uint64(1)


@njit(nogil=True, cache=True)
def mix64(x):  # type: ignore[no-untyped-def]
    """Return splitmix64's finaliser of the uint64 `x`: every input bit moves every output bit."""
    x = (x ^ (x >> _S30)) * _MIX_A
    x = (x ^ (x >> _S27)) * _MIX_B
    return x ^ (x >> _S31)


@njit(nogil=True, cache=True)
def _popcount(x):  # type: ignore[no-untyped-def]
    """Return the number of set bits of the uint64 `x`; LLVM makes one popcount of it."""
    count = np.uint64(0)
    while x:
        x &= x - _ONE
        count += _ONE
    return count


@njit(nogil=True, cache=True)
def _add_run(words, table, spin, flip, buckets):  # type: ignore[no-untyped-def]
    """Add the signed bits of `words` to `buckets`, one word per bucket, all of one length."""
    back = (_BITS - spin) & _LOW6
    for i in range(words.size):
        x = words[i]
        mask = ((table[i] << spin) | (table[i] >> back)) ^ flip
        signed = (_popcount(x & mask) << _ONE) - _popcount(x)
        buckets[i] += np.int32(np.int64(signed))


@njit(nogil=True, cache=True)
def accumulate(words, first_word, table, keys, out):  # type: ignore[no-untyped-def]
    """Add the set bits of `words` to the sketch `out` (TStore, Algorithm 1).

    Word ``q`` of the tensor stands in column ``c = q mod w`` of stripe ``t = q // w``. In row r
    all its bits go to bucket ``(c + shift(r, t)) mod w``; bit k counts +1 where bit k of
    ``rotl(table[r, c], spin(r, t)) ^ flip(r, t)`` is set, else -1. Bits of one word get their
    signs from independent bits of `table`, words of different stripes from independent `flip`,
    and words of one stripe never share a bucket: signs are pairwise independent within a bucket,
    so the estimate of the distance is unbiased. The loop stays contiguous and needs no multiply
    per word.

    Parameters
    ----------
    words : uint64 (n,)
        Consecutive words of the tensor, little-endian.
    first_word : int
        Position of ``words[0]`` in the tensor, in words.
    table : uint64 (d, w)
        Random sign bits per row and column.
    keys : uint64 (d,)
        One random key per row, from which the hashes of a stripe come.
    out : int32 (d, w)
        The sketch, added to in place.
    """
    depth, width = out.shape
    done = 0
    while done < words.size:
        stripe, column = divmod(first_word + done, width)
        taken = min(width - column, words.size - done)
        run = words[done : done + taken]
        for r in range(depth):
            flip = mix64(keys[r] + GOLDEN * np.uint64(stripe + 1))
            other = mix64(flip + keys[r])
            spin = other & _LOW6
            shift = np.int64((other >> _S6) % np.uint64(width))
            start = (column + shift) % width
            head = min(taken, width - start)
            signs = table[r, column : column + taken]
            _add_run(run[:head], signs[:head], spin, flip, out[r, start : start + head])
            _add_run(run[head:], signs[head:], spin, flip, out[r, : taken - head])
        done += taken
