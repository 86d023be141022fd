"""The compiled loops behind TensorSketch and the byte statistics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tstore_codecs.kernels.compiled import kernels_in

kernel = kernels_in(Path(__file__).parent)

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""Step of splitmix64: 2**64 over the golden ratio, odd."""
_MIX_A = np.uint64(0xBF58476D1CE4E5B9)
_MIX_B = np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31 = np.uint64(30), np.uint64(27), np.uint64(31)
_ONE, _TWO, _S4, _S63 = np.uint64(1), np.uint64(2), np.uint64(4), np.uint64(63)
_ODD_BITS, _ODD_PAIRS = np.uint64(0x5555555555555555), np.uint64(0x3333333333333333)
_EVEN_NIBBLES, _BYTE = np.uint64(0x0F0F0F0F0F0F0F0F), np.uint64(0xFF)
_FOURS = np.uint64(0x4444444444444444)

LANES = 16
"""Nibbles of a 64-bit word; each has buckets of its own."""
_STRIPES_PER_FLUSH = 31
"""A stripe adds at most 8 to a byte."""


@kernel
def mix64(x: Any) -> Any:
    """Finaliser of splitmix64 on uint64 (a number or an array): all input bits move all others."""
    x = (x ^ (x >> _S30)) * _MIX_A
    x = (x ^ (x >> _S27)) * _MIX_B
    return x ^ (x >> _S31)


@kernel
def _nibble_counts(x: np.uint64) -> np.uint64:
    """Set bits of each of the 16 nibbles of `x`, in place of the nibble."""
    x = x - ((x >> _ONE) & _ODD_BITS)
    return (x & _ODD_PAIRS) + ((x >> _TWO) & _ODD_PAIRS)


@kernel
def _rotate_and_count(
    words: NDArray[np.uint64],
    rotation: np.uint64,
    rotated: NDArray[np.uint64],
    minus: NDArray[np.uint64],
) -> None:
    """Rotate each word left; `minus` gets 4 less the set bits of each nibble."""
    for i in range(words.size):
        x = words[i]
        x = (x << rotation) | ((x >> _ONE) >> (_S63 - rotation))  # a shift by 64 is undefined
        rotated[i] = x
        minus[i] = _FOURS - _nibble_counts(x)


@kernel
def _add_stripe(
    rotated: NDArray[np.uint64],
    minus: NDArray[np.uint64],
    signs: NDArray[np.uint64],
    flip: np.uint64,
    even: NDArray[np.uint64],
    odd: NDArray[np.uint64],
) -> None:
    """Add (bits with sign +) - (bits with sign -) + 4 of each nibble to its byte of a counter."""
    for i in range(rotated.size):
        plus = _nibble_counts(rotated[i] & (signs[i] ^ flip))
        signed = (plus << _ONE) + minus[i]  # 0 to 8: stays within the nibble
        even[i] += signed & _EVEN_NIBBLES
        odd[i] += (signed >> _S4) & _EVEN_NIBBLES


@kernel
def _flush(counters: NDArray[np.uint64], out: NDArray[np.int64]) -> None:
    """Move the byte counters to `out`; a column that ran over the end belongs to the start."""
    depth, _, width = counters.shape
    columns = width // 2
    for r in range(depth):
        for lane in range(LANES):
            shift = np.uint64(8 * (lane // 2))
            counter, sums = counters[r, lane % 2], out[r, lane]
            for c in range(columns):
                low = (counter[c] >> shift) & _BYTE
                high = (counter[columns + c] >> shift) & _BYTE
                sums[c] += np.int64(low + high)
    counters[:] = 0


@kernel
def accumulate(
    words: NDArray[np.uint64],
    first_stripe: int,
    element_bits: int,
    table: NDArray[np.uint64],
    keys: NDArray[np.uint64],
    out: NDArray[np.int64],
) -> None:
    """Add the set bits of `words` to the sketch `out` (TStore, Algorithm 1).

    A stripe is `columns` consecutive words. In stripe ``t`` each word is rotated by a number of
    whole elements drawn from ``t``; then, in row ``r``, nibble ``l`` of the word in column ``c``
    goes to bucket ``(l, (c + shift(r, t)) mod columns)``. Bit ``k`` of the rotated word counts +1
    where bit ``k`` of ``table[r, c] ^ flip(r, t)`` is set, else -1. Bits of one stripe that share
    a bucket are those of one nibble and have independent bits of `table`; two stripes have
    independent flips. So signs are pairwise independent within a bucket, which makes the
    estimate unbiased, and a bucket holds bits of one significance only: distances can be told
    apart by bit planes.

    The loops are plain arithmetic on contiguous words. Sums stand in bytes, 8 at most per stripe,
    and move to `out` before they could overflow.

    Parameters
    ----------
    words : uint64 (n,)
        Consecutive words of the tensor, little-endian; need not be aligned. Only whole stripes
        are read.
    first_stripe : int
        Number of stripes of the tensor before ``words[0]``.
    element_bits : int
        8, 16, 32 or 64.
    table : uint64 (d, columns)
        Random sign bits per row and column.
    keys : uint64 (d,)
        One random key per row; the hashes of the stripes come from it.
    out : int64 (d, 16, columns)
        The sketch; added to in place.
    """
    depth, columns = table.shape
    counters = np.zeros((depth, 2, 2 * columns), dtype=np.uint64)
    rotated = np.empty(columns, dtype=np.uint64)
    minus = np.empty(columns, dtype=np.uint64)
    n_stripes = words.size // columns
    for s in range(n_stripes):
        step = GOLDEN * np.uint64(first_stripe + s + 1)
        turn = mix64(keys[0] ^ step) % np.uint64(64 // element_bits)
        run = words[s * columns : (s + 1) * columns]
        _rotate_and_count(run, turn * np.uint64(element_bits), rotated, minus)
        for r in range(depth):
            flip = mix64(keys[r] + step)
            start = np.int64(mix64(flip ^ keys[r]) % np.uint64(columns))
            even = counters[r, 0, start : start + columns]
            odd = counters[r, 1, start : start + columns]
            _add_stripe(rotated, minus, table[r], flip, even, odd)
        if s % _STRIPES_PER_FLUSH == _STRIPES_PER_FLUSH - 1:
            _flush(counters, out)
    _flush(counters, out)
    out -= 4 * n_stripes


@kernel
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


@kernel
def squared_differences(
    sketches: NDArray[np.int16],
    a: NDArray[np.int64],
    b: NDArray[np.int64],
    plane_ends: NDArray[np.int64],
    out: NDArray[np.int64],
) -> None:
    """Squared distance of the sketches of each pair, per plane group and row.

    Parameters
    ----------
    sketches : int16 (n, planes, depth, buckets)
    a, b : int64 (m,)
        Numbers of the sketches to compare.
    plane_ends : int64 (groups,)
        Where the planes of each group end.
    out : int64 (m, groups, depth)
        Filled.
    """
    depth, buckets = sketches.shape[2], sketches.shape[3]
    for i in range(a.size):
        plane = 0
        for group in range(plane_ends.size):
            for r in range(depth):
                out[i, group, r] = 0
            while plane < plane_ends[group]:
                for r in range(depth):
                    x, y = sketches[a[i], plane, r], sketches[b[i], plane, r]
                    total = np.int64(0)
                    for k in range(buckets):
                        apart = np.int64(x[k]) - np.int64(y[k])
                        total += apart * apart
                    out[i, group, r] += total
                plane += 1
