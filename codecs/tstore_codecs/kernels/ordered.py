"""Chunks of residuals as rANS streams whose tables depend on the base and on the row."""

from typing import Any, NamedTuple

import numpy as np

from tstore_codecs.kernels import vectors
from tstore_codecs.kernels.compiled import kernel
from tstore_codecs.kernels.lanes import PAD_WORDS, STATE_LOW
from tstore_codecs.kernels.paths import compiler_features
from tstore_codecs.kernels.rans import STACK_UNDERFLOW, TILE, check_end, decode_tile, encode_tile
from tstore_codecs.kernels.residuals import N_CONTEXTS, exponent_contexts, merge, split

HAS_SHUFFLE = "avx2" in compiler_features()
"""Whether 32 table numbers are looked up at once. The result is the same, so no path forces it."""


class Elements(NamedTuple):
    """What residuals need to know about a dtype.

    half : uint32 or uint64
        ``2 ** (w - 1)`` for elements of w bits; its type is the one computed in.
    floats : bool
        Whether elements are floats with their sign on top.
    shift : uint8
        `residuals.MSB_SHIFT` or `residuals.ULP_SHIFT`.
    passes : int
        Raw bits of an element take up to ``16 * passes`` bits.
    """

    half: Any
    floats: bool
    shift: np.uint8
    passes: int


class Contexts(NamedTuple):
    """Which table codes which element.

    shift, low : int
        See `residuals.exponent_contexts`.
    row_length : int
        Elements per row; 1 or more.
    classes : uint8 (rows,)
        The class of each row; unused if there is but one.
    choice : uint8 (32 * classes,)
        The table of each class and context. Empty: there is but one table.
    """

    shift: int
    low: int
    row_length: int
    classes: Any
    choice: Any


@kernel
def _look_up(choice, fields, tables):
    done = 0
    if HAS_SHUFFLE:
        done = fields.size & -N_CONTEXTS
        for at in range(0, done, N_CONTEXTS):
            vectors.look_up(choice, fields, tables, at)
    for i in range(done, fields.size):
        tables[i] = choice[fields[i]]


@kernel
def pick_tables(base, first, elements, contexts, fields, tables):
    """Write the table of each of n elements to `tables`, uint8 (n,).

    `first` is the index of the first one in its tensor; `fields`, uint8 (n,), is scratch.
    """
    n = base.size
    if contexts.choice.size == 0:
        for i in range(n):
            tables[i] = 0
        return
    exponent_contexts(base, elements.half, contexts.shift, contexts.low, fields)
    at = 0
    while at < n:
        row, offset = divmod(first + at, contexts.row_length)
        end = min(n, at + contexts.row_length - offset)
        kind = 0
        if contexts.choice.size > N_CONTEXTS:
            kind = np.int64(contexts.classes[row])
        choice = contexts.choice[kind * N_CONTEXTS : (kind + 1) * N_CONTEXTS]
        _look_up(choice, fields[at:end], tables[at:end])
        at = end


@kernel
def encode_residuals(path, target, base, first, elements, contexts, ranges, states, words):
    """Code `target` given `base`, both words (n,) that start at element `first` of their tensor.

    Parameters
    ----------
    path : paths.Path
    elements : Elements
    contexts : Contexts
    ranges : uint32 (256 * tables,)
        See `lanes.encode_symbols`.
    states : uint32 (rans.lanes_of(n),)
        Filled with those a decoder starts from.
    words : uint16 (n * (1 + passes) + PAD_WORDS,)
        Filled.

    Returns
    -------
    int
        Words on the stack.
    """
    symbols = np.empty(TILE, np.uint8)
    fields, tables = np.empty_like(symbols), np.empty_like(symbols)
    rest = np.full(TILE, elements.half)
    raw = np.empty((elements.passes, TILE), np.uint16)
    for lane in range(states.size):
        states[lane] = STATE_LOW
    height = np.int64(0)
    for at in range((target.size - 1) // TILE * TILE, -1, -TILE):
        theirs = base[at : at + TILE]
        n = theirs.size
        split(
            target[at : at + TILE],
            theirs,
            elements.half,
            elements.floats,
            elements.shift,
            symbols[:n],
            rest[:n],
            raw,
        )
        pick_tables(theirs, first + at, elements, contexts, fields, tables)
        height = encode_tile(
            path, states, words, height, ranges, tables, symbols[:n], elements.shift, raw
        )
    return height


@kernel
def decode_residuals(path, words, base, first, elements, contexts, slots, states, target):
    """Undo `encode_residuals`: fill `target`; return `rans.OK` or the check that failed.

    `words` has `PAD_WORDS` on both sides of the stack.
    """
    symbols = np.empty(TILE, np.uint8)
    fields, tables = np.empty_like(symbols), np.empty_like(symbols)
    rest = np.full(TILE, elements.half)
    raw = np.zeros((elements.passes, TILE), np.uint16)
    height = np.int64(words.size - PAD_WORDS)
    for at in range(0, target.size, TILE):
        theirs = base[at : at + TILE]
        n = theirs.size
        pick_tables(theirs, first + at, elements, contexts, fields, tables)
        height = decode_tile(
            path, states, words, height, slots, tables, symbols[:n], elements.shift, raw
        )
        if height < PAD_WORDS:
            return STACK_UNDERFLOW
        merge(
            symbols[:n],
            raw,
            theirs,
            elements.half,
            elements.floats,
            elements.shift,
            rest[:n],
            target[at : at + TILE],
        )
    return check_end(states, height)
