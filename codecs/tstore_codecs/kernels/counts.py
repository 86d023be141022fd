"""Counting symbols by class of row and by context, and telling the class of a row."""

import numpy as np

from tstore_codecs.kernels.compiled import kernel
from tstore_codecs.kernels.rans import TILE
from tstore_codecs.kernels.residuals import MSB_SHIFT, N_CONTEXTS, exponent_contexts, split

CLASS_BITS = 5
N_CLASSES = 1 << CLASS_BITS
CLASS_STEP_BITS = 5
LOWEST_CLASS = -8
"""Classes are an eighth of a bit wide (bit lengths are in 1/256 bit), from one bit below what is
expected to three above: a few touched rows stand out from many calm ones."""

ROW_SAMPLES = 128
"""About how many elements of a row tell its class."""

SAMPLE_BLOCK = 512
"""Elements in a row that a sample takes at once, about every `SAMPLE_STEP`."""

SAMPLE_STEP = 1 << 15
MIN_SAMPLE_BLOCKS = 48


@kernel
def symbol_lengths(shift, lengths):
    """Write the bit length of the residuals of each symbol, times 256, to `lengths`, int32 (256,)."""
    for s in range(256):
        if shift == MSB_SHIFT:
            lengths[s] = 256 * (s >> 1)
        elif s < 4:
            lengths[s] = 256 * min(s, 2)
        else:
            lengths[s] = 256 * ((s >> 2) + 2)


@kernel
def highest_field(base, half, shift):
    """Return the highest ``magnitude >> shift`` in a sample of `base`, words (n,)."""
    step = max(base.size // 4096, 1)
    highest = np.uint64(0)
    for i in range(0, base.size, step):
        magnitude = np.uint64(base[i]) & (np.uint64(half) - np.uint64(1))
        highest = max(highest, magnitude >> np.uint64(shift))
    return np.int64(highest)


@kernel
def _cells(target, base, elements, shift, low, alphabet, symbols, rest, raw, cells):
    """Write ``context * alphabet + symbol`` of n elements to `cells`, uint16 (n,).

    The arguments before it are scratch, from `_scratch`.
    """
    n = base.size
    split(target, base, elements.half, elements.floats, elements.shift, symbols[:n], rest[:n], raw)
    fields = symbols[TILE:]
    exponent_contexts(base, elements.half, shift, low, fields)
    width = np.uint16(alphabet)
    for i in range(n):
        cells[i] = np.uint16(np.uint16(fields[i]) * width + np.uint16(symbols[i]))


@kernel
def sample_deviations(target, base, elements, shift, low, deviations):
    """Write how far each symbol is from the mean bit length of its context, by a sample.

    Parameters
    ----------
    target, base : words (n,)
    elements : ordered.Elements
    shift, low : int
        See `residuals.exponent_contexts`.
    deviations : int16 (32, alphabet)
        Filled; in 1/256 bit.
    """
    alphabet = deviations.shape[1]
    lengths = np.empty(256, np.int32)
    symbol_lengths(elements.shift, lengths)
    sums, counts = np.zeros(N_CONTEXTS, np.int64), np.zeros(N_CONTEXTS, np.int64)
    scratch = _scratch(elements)
    step = max(min(base.size // MIN_SAMPLE_BLOCKS, SAMPLE_STEP), SAMPLE_BLOCK)
    for at in range(0, base.size, step):
        theirs = base[at : at + SAMPLE_BLOCK]
        n = theirs.size
        _cells(target[at : at + n], theirs, elements, shift, low, alphabet, *scratch)
        symbols, fields = scratch[0][:n], scratch[0][TILE : TILE + n]
        for i in range(n):
            sums[fields[i]] += lengths[symbols[i]]
            counts[fields[i]] += 1
    for c in range(N_CONTEXTS):
        mean = sums[c] // max(counts[c], 1)
        for s in range(alphabet):
            deviations[c, s] = lengths[s] - mean


@kernel
def _scratch(elements):
    """Return what `_cells` writes to: symbols and contexts, residuals, raw bits, cells."""
    return (
        np.empty(2 * TILE, np.uint8),
        np.full(TILE, elements.half),
        np.empty((elements.passes, TILE), np.uint16),
        np.empty(TILE, np.uint16),
    )


@kernel
def _class_of_row(cells, deviations):
    """Return the class of a row by how far its bit lengths are from those of its contexts."""
    total, n = np.int64(0), np.int64(0)
    for i in range(0, cells.size, max(cells.size // ROW_SAMPLES, 1)):
        total += deviations[cells[i]]
        n += 1
    step = (total // n + (1 << CLASS_STEP_BITS >> 1)) >> CLASS_STEP_BITS
    return min(max(step - LOWEST_CLASS, 0), N_CLASSES - 1)


@kernel
def _count(cells, counts):
    for cell in cells:
        counts[cell] += np.uint32(1)


@kernel
def count_rows(target, base, elements, shift, low, row_length, deviations, classes, counts):
    """Count the symbols of each class and context, and write the class of each row.

    Parameters
    ----------
    target, base : words (n,)
        Whole rows, but for the last one of the tensor.
    elements : ordered.Elements
    shift, low : int
        See `residuals.exponent_contexts`.
    row_length : int
        At most `TILE`.
    deviations : int16 (32, alphabet)
        From `sample_deviations`. Empty: all rows are of class 0.
    classes : uint8 (rows,)
        Filled.
    counts : uint32 (classes, 32, alphabet)
        Added to.
    """
    alphabet = counts.shape[2]
    by_class = counts.reshape(counts.shape[0], N_CONTEXTS * alphabet)
    by_cell = deviations.reshape(-1)
    scratch = _scratch(elements)
    for row in range(classes.size):
        at = row * row_length
        theirs = base[at : at + row_length]
        n = theirs.size
        _cells(target[at : at + n], theirs, elements, shift, low, alphabet, *scratch)
        cells = scratch[3][:n]
        kind = _class_of_row(cells, by_cell) if by_cell.size > 0 else 0
        classes[row] = kind
        _count(cells, by_class[kind])
