"""Interleaved order-0 rANS with a static table; FORMAT.md specifies the stream.

64 lanes with a 32-bit state each; symbol i belongs to lane ``i mod 64``. States stay in
``[2**16, 2**32)`` and exchange 16-bit words with one stack that all lanes share.

No loop here checks an index. They cannot leave their arrays because callers pass the documented
sizes, slots are masked, and the height of the stack is compared once per row of 64 symbols.
"""

import numpy as np
from numba import njit

from tstore_codecs.kernels.freqs import PROB_BITS, PROB_TOTAL

LANES = 64
STATE_LOW = 1 << 16

OK = 0
STACK_UNDERFLOW = 1
STACK_LEFTOVER = 2
WRONG_FINAL_STATE = 3

_U8, _U12, _U16, _U20 = np.uint32(8), np.uint32(PROB_BITS), np.uint32(16), np.uint32(20)
_SLOT_MASK = np.uint32(PROB_TOTAL - 1)
_WORD_MASK = np.uint32(0xFFFF)
_LOW = np.uint32(STATE_LOW)
_ONE = np.uint32(1)


@njit(nogil=True, cache=True, error_model="numpy")
def encode_lanes(symbols, freqs, states, words):  # type: ignore[no-untyped-def]
    """Code `symbols` from the last row of 64 to the first.

    Parameters
    ----------
    symbols : uint8 (n,)
    freqs : uint32 (256,)
        Sum 4096; not zero for any symbol that occurs.
    states : uint32 (64,)
        Filled with the states a decoder starts from.
    words : uint16 (n + 1,)
        Stack of words; one symbol pushes at most one.

    Returns
    -------
    int
        Words on the stack.
    """
    starts = np.zeros(256, np.uint32)
    for s in range(1, 256):
        starts[s] = starts[s - 1] + freqs[s - 1]
    states[:] = _LOW
    height = np.int64(0)
    for row in range((symbols.size + LANES - 1) // LANES - 1, -1, -1):
        first = row * LANES
        for lane in range(min(LANES, symbols.size - first)):
            symbol = symbols[first + lane]
            freq = freqs[symbol]
            state = states[lane]
            # Always store, advance only if the word is due: the branch would be a coin toss.
            words[height] = np.uint16(state & _WORD_MASK)
            due = np.uint32(np.uint32(state >> _U20) >= freq)
            height += np.int64(due)
            state = np.uint32(state >> np.uint32(due * _U16))
            quotient = np.uint32(state // freq)
            rest = np.uint32(state - np.uint32(quotient * freq))
            states[lane] = np.uint32((quotient << _U12) + rest + starts[symbol])
    return height


@njit(nogil=True, cache=True)
def decode_lanes(words, slots, states, out):  # type: ignore[no-untyped-def]
    """Undo `encode_lanes`: fill `out` from the first row to the last.

    Parameters
    ----------
    words : uint16 (64 + m,)
        The stack of m words, after 64 words of padding that keep a row's reads inside the array
        when the stack runs dry.
    slots : uint32 (4096,)
        From `decode_slots`.
    states : uint32 (64,)
        Where to start; each at least 2**16. Overwritten.
    out : uint8 (n,)

    Returns
    -------
    int
        `OK`, or the check that failed.
    """
    height = words.size
    for first in range(0, out.size, LANES):
        for lane in range(min(LANES, out.size - first) - 1, -1, -1):
            state = states[lane]
            entry = slots[state & _SLOT_MASK]
            out[first + lane] = np.uint8(entry)
            freq = np.uint32(((entry >> _U8) & _SLOT_MASK) + _ONE)
            state = np.uint32(freq * np.uint32(state >> _U12) + np.uint32(entry >> _U20))
            refilled = np.uint32((state << _U16) | np.uint32(words[height - 1]))
            due = state < _LOW
            height -= np.int64(due)
            states[lane] = refilled if due else state
        if height < LANES:
            return STACK_UNDERFLOW
    if height != LANES:
        return STACK_LEFTOVER
    for lane in range(LANES):
        if states[lane] != _LOW:
            return WRONG_FINAL_STATE
    return OK
