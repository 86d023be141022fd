"""Streams of interleaved rANS: rows of symbols, each followed by its raw bits.

32 lanes with a 32-bit state each (4 for short streams); symbol i belongs to lane ``i mod lanes``.
States stay in ``[2**16, 2**32)`` and exchange 16-bit words with one stack that all lanes share.
FORMAT.md, "rANS stream". Whole rows of 32 run on `vectors`, all others on `lanes`.
"""

import numpy as np

from tstore_codecs.kernels import lanes as plain
from tstore_codecs.kernels import vectors
from tstore_codecs.kernels.compiled import kernel
from tstore_codecs.kernels.lanes import BITS_PER_PASS, LANES, PAD_WORDS, STATE_LOW

FEW_LANES = 4
FEW_LANES_BELOW = 4096
"""Streams of fewer symbols have `FEW_LANES` lanes: their states take 16 bytes instead of 128."""

TILE = 2048
"""Symbols between two looks at contexts; a multiple of the lanes. A tile's arrays fit L1."""

OK = 0
STACK_UNDERFLOW = -1
STACK_LEFTOVER = -2
WRONG_FINAL_STATE = -3

_LOW = np.uint32(STATE_LOW)


@kernel
def lanes_of(n):
    """Return how many lanes a stream of `n` symbols has."""
    return LANES if n >= FEW_LANES_BELOW else FEW_LANES


@kernel
def encode_tile(path, states, words, height, ranges, tables, symbols, shift, raw):
    """Push `symbols`, uint8 (n,), and their raw bits, from the last row to the first.

    Parameters
    ----------
    path : paths.Path
    states : uint32 (lanes,)
    words : uint16 (h,)
        Room for a word per symbol and pass, and `PAD_WORDS`.
    height : int
        Words on the stack.
    ranges, tables
        See `lanes.encode_symbols`.
    shift : uint8
        How symbols tell their raw bits: ``(symbol >> shift) - 1``.
    raw : uint16 (passes, >= n)
        Their raw bits, 16 per pass, the lowest in pass 0.

    Returns
    -------
    int
        The new height.
    """
    n, lanes, passes = symbols.size, states.size, raw.shape[0]
    bits_shift = np.int64(shift)
    for at in range((n - 1) // lanes * lanes, -1, -lanes):
        count = min(lanes, n - at)
        for k in range(passes - 1, -1, -1):
            skip = np.int64(1 + BITS_PER_PASS * k)
            if count == LANES:
                height = vectors.encode_bits(
                    path, states, words, height, symbols, bits_shift, skip, raw[k], at
                )
            else:
                height = plain.encode_bits(
                    states, words, height, symbols, bits_shift, skip, raw[k], at, count
                )
        if count == LANES:
            height = vectors.encode_symbols(
                path, states, words, height, ranges, tables, symbols, at
            )
        else:
            height = plain.encode_symbols(states, words, height, ranges, tables, symbols, at, count)
    return height


@kernel
def decode_tile(path, states, words, height, slots, tables, symbols, shift, raw):
    """Undo `encode_tile`: fill `symbols` and `raw`, from the first row to the last.

    The stack, from ``words[PAD_WORDS]`` to `height`, has `PAD_WORDS` on both sides. `raw` keeps
    what it had where a whole row has no raw bits in a pass.

    Returns
    -------
    int
        The new height, or `STACK_UNDERFLOW`.
    """
    n, lanes, passes = symbols.size, states.size, raw.shape[0]
    bits_shift = np.int64(shift)
    for at in range(0, n, lanes):
        count = min(lanes, n - at)
        if count == LANES:
            height = vectors.decode_symbols(path, states, words, height, slots, tables, symbols, at)
        else:
            height = plain.decode_symbols(states, words, height, slots, tables, symbols, at, count)
        if height < PAD_WORDS:
            return STACK_UNDERFLOW
        for k in range(passes):
            skip = np.int64(1 + BITS_PER_PASS * k)
            if count == LANES:
                height = vectors.decode_bits(
                    path, states, words, height, symbols, bits_shift, skip, raw[k], at
                )
            else:
                height = plain.decode_bits(
                    states, words, height, symbols, bits_shift, skip, raw[k], at, count
                )
            if height < PAD_WORDS:
                return STACK_UNDERFLOW
    return height


@kernel
def check_end(states, height):
    """Return `OK`, or what shows that a stream decoded to `height` and `states` is not sound."""
    if height < PAD_WORDS:
        return STACK_UNDERFLOW
    if height > PAD_WORDS:
        return STACK_LEFTOVER
    for state in states:
        if state != _LOW:
            return WRONG_FINAL_STATE
    return OK


@kernel
def encode_plane(path, plane, ranges, states, words):
    """Code `plane`, uint8 (n,), under one table; return the words on the stack.

    `states`, uint32 (lanes_of(n),), is filled with those a decoder starts from.
    """
    tables = np.zeros(TILE, np.uint8)
    raw = np.empty((0, TILE), np.uint16)
    for lane in range(states.size):
        states[lane] = _LOW
    height = np.int64(0)
    for at in range((plane.size - 1) // TILE * TILE, -1, -TILE):
        symbols = plane[at : at + TILE]
        height = encode_tile(path, states, words, height, ranges, tables, symbols, np.uint8(0), raw)
    return height


@kernel
def decode_plane(path, words, slots, states, plane):
    """Undo `encode_plane`; return `OK` or the check that failed."""
    tables = np.zeros(TILE, np.uint8)
    raw = np.empty((0, TILE), np.uint16)
    height = np.int64(words.size - PAD_WORDS)
    for at in range(0, plane.size, TILE):
        symbols = plane[at : at + TILE]
        height = decode_tile(path, states, words, height, slots, tables, symbols, np.uint8(0), raw)
        if height < PAD_WORDS:
            return STACK_UNDERFLOW
    return check_end(states, height)
