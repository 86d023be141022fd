"""Static frequency tables over bytes: counting, scaling to 12 bits, and the written form.

A table is uint32 (256,) with sum 4096; a symbol that does not occur has frequency 0.
"""

import numpy as np

from tstore_codecs.kernels.compiled import kernel

PROB_BITS = 12
PROB_TOTAL = 1 << PROB_BITS

MAX_TABLE_NBYTES = 1 + 32 + 2 * 256
"""Longest written table: last symbol, a bit per symbol, at most two bytes per frequency."""

TABLE_ENDS_EARLY = -1
TABLE_NOT_CANONICAL = -2
TABLE_WRONG_SUM = -3

_ONE = np.uint32(1)


@kernel
def histogram(symbols, counts):
    """Write to `counts`, int64 (256,), how often each byte occurs in `symbols`, uint8 (n,)."""
    # Four tables: in a run of one symbol, each addition would wait for the store before it.
    partial = np.zeros((4, 256), np.uint32)
    quads = symbols.size // 4 * 4
    for i in range(0, quads, 4):
        partial[0, symbols[i]] += _ONE
        partial[1, symbols[i + 1]] += _ONE
        partial[2, symbols[i + 2]] += _ONE
        partial[3, symbols[i + 3]] += _ONE
    for i in range(quads, symbols.size):
        partial[0, symbols[i]] += _ONE
    for s in range(256):
        counts[s] = np.int64(partial[0, s]) + partial[1, s] + partial[2, s] + partial[3, s]


@kernel
def normalise(counts, freqs):
    """Scale `counts` to `freqs` with sum 4096 and at least 1 for every symbol that occurs.

    Rounds to nearest, then mends the sum in single steps, each where it costs the fewest bits
    (``count / (2 * freq ± 1)`` is the slope; ties go to the lower symbol). Integers only, so
    that every machine gets the same table.

    Parameters
    ----------
    counts : int64 (n,)
        Not all zero, each below 2**40.
    freqs : uint32 (>= n,)
        Filled as far as the counts go.
    """
    total = counts.sum()
    excess = np.int64(-PROB_TOTAL)
    for s in range(counts.size):
        freq = (2 * PROB_TOTAL * counts[s] + total) // (2 * total)
        if counts[s] > 0:
            freq = max(freq, 1)
        freqs[s] = freq
        excess += freq
    while excess != 0:
        step = -1 if excess > 0 else 1
        best = -1
        for s in range(counts.size):
            if counts[s] == 0 or (step < 0 and freqs[s] == 1):
                continue
            if best >= 0:
                # Slopes of s and best, compared without a division.
                mine = counts[s] * (2 * np.int64(freqs[best]) + step)
                its = counts[best] * (2 * np.int64(freqs[s]) + step)
                if mine * step <= its * step:
                    continue
            best = s
        freqs[best] = np.int64(freqs[best]) + step
        excess += step


@kernel
def _log2_times_256(value):
    """Return ``log2(value) * 256``, rounded down, for 0 < value < 2**30, by repeated squaring."""
    exponent = np.int64(0)
    while value >> (exponent + 1) > 0:
        exponent += 1
    mantissa = np.int64(value) << (30 - exponent)
    log = exponent * 256
    for k in range(7, -1, -1):
        mantissa = (mantissa * mantissa) >> 30
        if mantissa >> 31 > 0:
            mantissa >>= 1
            log += 1 << k
    return log


@kernel
def coded_nbytes(counts, freqs):
    """Return the bytes that symbols with these counts cost under `freqs`, rounded down.

    Integer logarithms, because the mode of a plane depends on this and must not vary between
    machines; they overstate a symbol by at most 1/256 bit.
    """
    bits256 = np.int64(0)
    for s in range(256):
        if counts[s] > 0:
            bits256 += counts[s] * (256 * PROB_BITS - _log2_times_256(np.int64(freqs[s])))
    return bits256 >> 11


@kernel
def write_table(freqs, out):
    """Write the table `freqs` to `out`, uint8 (MAX_TABLE_NBYTES,); return the bytes written."""
    last = 255
    while freqs[last] == 0:
        last -= 1
    out[0] = last
    at = 1 + (last >> 3) + 1
    out[1:at] = 0
    for s in range(last + 1):
        if freqs[s] == 0:
            continue
        out[1 + (s >> 3)] |= np.uint8(1 << (s & 7))
        less_one = freqs[s] - _ONE
        if less_one < 128:
            out[at] = less_one
            at += 1
        else:
            out[at] = (less_one & 127) | 128
            out[at + 1] = less_one >> 7
            at += 2
    return at


@kernel
def read_table(data, freqs):
    """Read a table that starts `data` into `freqs`; accepts exactly what `write_table` writes.

    Returns
    -------
    int
        Bytes read, or one of the negative ``TABLE_*`` codes. After such a code the contents of
        `freqs` mean nothing.
    """
    freqs[:] = 0
    if data.size < 1:
        return TABLE_ENDS_EARLY
    last = np.int64(data[0])
    at = 1 + (last >> 3) + 1
    if data.size < at:
        return TABLE_ENDS_EARLY
    if data[at - 1] >> (last & 7) != 1:
        return TABLE_NOT_CANONICAL
    total = np.int64(0)
    for s in range(last + 1):
        if (data[1 + (s >> 3)] >> (s & 7)) & 1 == 0:
            continue
        if at >= data.size:
            return TABLE_ENDS_EARLY
        less_one = np.int64(data[at])
        at += 1
        if less_one >= 128:
            if at >= data.size:
                return TABLE_ENDS_EARLY
            high = np.int64(data[at])
            at += 1
            if high == 0:
                return TABLE_NOT_CANONICAL
            less_one = (less_one & 127) | (high << 7)
        freqs[s] = less_one + 1
        total += less_one + 1
    if total != PROB_TOTAL:
        return TABLE_WRONG_SUM
    return at


@kernel
def decode_slots(freqs, slots):
    """Fill `slots`, uint32 (4096,): symbol, frequency - 1 and offset in its range, per slot.

    They take 8, 12 and 12 bits from the bottom. `freqs` must sum to 4096.
    """
    slot = 0
    for s in range(256):
        for offset in range(freqs[s]):
            slots[slot] = (
                np.uint32(s)
                | ((freqs[s] - _ONE) << np.uint32(8))
                | (np.uint32(offset) << np.uint32(20))
            )
            slot += 1


@kernel
def encode_ranges(freqs, ranges):
    """Fill `ranges`, uint32 (256,): frequency - 1 in 12 bits, start in the 12 above, per symbol."""
    start = np.uint32(0)
    for s in range(256):
        ranges[s] = np.uint32(freqs[s] - _ONE) & np.uint32(PROB_TOTAL - 1)
        ranges[s] |= np.uint32(start << np.uint32(PROB_BITS))
        start += freqs[s]
