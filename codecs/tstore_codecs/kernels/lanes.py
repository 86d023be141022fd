"""One row of rANS lanes, lane by lane: the plain twins of `vectors`. FORMAT.md, "rANS stream".

None of the loops here checks an index. They cannot leave their arrays because callers pass the
documented sizes, slots are masked, and the stack has `PAD_WORDS` words of padding on both sides,
with its height compared after every pass over a row.
"""

import numpy as np

from tstore_codecs.kernels.compiled import kernel
from tstore_codecs.kernels.freqs import PROB_BITS, PROB_TOTAL

LANES = 32
PAD_WORDS = LANES
STATE_LOW = 1 << 16
BITS_PER_PASS = 16

_U8, _U12, _U16, _U20 = np.uint32(8), np.uint32(PROB_BITS), np.uint32(16), np.uint32(20)
_SLOT_MASK = np.uint32(PROB_TOTAL - 1)
_WORD_MASK = np.uint32(0xFFFF)
_LOW = np.uint32(STATE_LOW)
_ONE = np.uint32(1)


@kernel
def decode_symbols(states, words, height, slots, tables, symbols, at, count):
    """Pop one symbol for each of `count` lanes, from the highest lane to the lowest.

    Parameters
    ----------
    states : uint32 (lanes,)
        Each at least 2**16. Overwritten.
    words : uint16 (h,)
        The stack and its padding.
    height : int
        Words up to the top of the stack.
    slots : uint32 (4096 * t,)
        One table of `freqs.decode_slots` after the other.
    tables : uint8 (n,)
        The table of each symbol, below t.
    symbols : uint8 (n,)
        Filled from `at` on.

    Returns
    -------
    int
        The new height.
    """
    for lane in range(count - 1, -1, -1):
        state = states[lane]
        slot = (np.int64(tables[at + lane]) << PROB_BITS) | np.int64(state & _SLOT_MASK)
        entry = slots[slot]
        symbols[at + lane] = np.uint8(entry)
        freq = np.uint32(((entry >> _U8) & _SLOT_MASK) + _ONE)
        state = np.uint32(freq * np.uint32(state >> _U12) + np.uint32(entry >> _U20))
        refilled = np.uint32((state << _U16) | np.uint32(words[height - 1]))
        due = state < _LOW
        height -= np.int64(due)
        states[lane] = refilled if due else state
    return height


@kernel
def raw_width(symbol, shift, skip):
    """Return how many raw bits one pass has for `symbol`: ``(symbol >> shift) - skip``, 0 to 16.

    A symbol has ``(symbol >> shift) - 1`` raw bits, or none. The first pass (`skip` 1) has the
    lowest 16 of them, the second (`skip` 17) the next 16, and so on.
    """
    return np.uint32(min(max(np.int64(symbol >> shift) - skip, 0), BITS_PER_PASS))


@kernel
def decode_bits(states, words, height, symbols, shift, skip, raw, at, count):
    """Pop one pass of raw bits for each lane into `raw`, uint16 (n,), by its symbol.

    `shift` and `skip`, both int64, are those of `raw_width`; the rest is as in `decode_symbols`.
    """
    for lane in range(count - 1, -1, -1):
        width = raw_width(symbols[at + lane], shift, skip)
        state = states[lane]
        raw[at + lane] = np.uint16(state & np.uint32(np.uint32(_ONE << width) - _ONE))
        state = np.uint32(state >> width)
        refilled = np.uint32((state << _U16) | np.uint32(words[height - 1]))
        due = state < _LOW
        height -= np.int64(due)
        states[lane] = refilled if due else state
    return height


@kernel
def encode_symbols(states, words, height, ranges, tables, symbols, at, count):
    """Push one symbol for each of `count` lanes, from the lowest lane to the highest.

    `ranges`, uint32 (256 * t,), has one table of `freqs.encode_ranges` after the other; the rest
    is as in `decode_symbols`.
    """
    for lane in range(count):
        entry = ranges[(np.int64(tables[at + lane]) << 8) | np.int64(symbols[at + lane])]
        freq = np.uint32((entry & _SLOT_MASK) + _ONE)
        state = states[lane]
        # Always store, advance only if the word is due: the branch would be a coin toss.
        words[height] = np.uint16(state & _WORD_MASK)
        due = np.uint32(np.uint32(state >> _U20) >= freq)
        height += np.int64(due)
        state = np.uint32(state >> np.uint32(due * _U16))
        quotient = np.uint32(state // freq)
        rest = np.uint32(state - np.uint32(quotient * freq))
        states[lane] = np.uint32(
            np.uint32(quotient << _U12) + np.uint32(rest + np.uint32(entry >> _U12))
        )
    return height


@kernel
def encode_bits(states, words, height, symbols, shift, skip, raw, at, count):
    """Push what `decode_bits` pops: ``raw[at + lane]`` has no more bits than its symbol says."""
    for lane in range(count):
        width = raw_width(symbols[at + lane], shift, skip)
        state = states[lane]
        words[height] = np.uint16(state & _WORD_MASK)
        due = np.uint32(np.uint32(np.uint32(state >> _U16) >> np.uint32(_U16 - width)) != 0)
        height += np.int64(due)
        state = np.uint32(state >> np.uint32(due * _U16))
        states[lane] = np.uint32(np.uint32(state << width) | np.uint32(raw[at + lane]))
    return height
