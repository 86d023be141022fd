"""Fitting contexts: which row is of which class, and which contexts share a table.

ULPack has a table per exponent of the base. Here a context is an exponent and a class of rows, and
contexts of similar statistics share one of at most `MAX_TABLES` tables: fine classes cost little.
Everything is integers, so every machine fits the same.
"""

import numpy as np

from tstore_codecs.kernels.compiled import kernel
from tstore_codecs.kernels.rans import TILE
from tstore_codecs.kernels.residuals import MSB_SHIFT, N_CONTEXTS, exponent_contexts, split

MAX_TABLES = 16
"""Tables of a tensor. More gain less than 0.1 % and leave the L2 cache."""

CLASS_BITS = 5
N_CLASSES = 1 << CLASS_BITS
CLASS_STEP_BITS = 5
LOWEST_CLASS = -8
"""Classes are an eighth of a bit wide (bit lengths are in 1/256 bit), from one bit below what is
expected to three above: a few touched rows stand out from many calm ones."""

ROW_SAMPLES = 128
"""About how many elements of a row tell its class."""

SAMPLE_BLOCK = 512
SAMPLE_STEP = 1 << 15
MIN_SAMPLE_BLOCKS = 48

_BINS = 192
_CONTEXTS_NBYTES = 39
"""What a model with more than one table takes besides: choices, classes, lengths."""

_COST_UNITS_PER_BIT = 1 << 16
_LOG2 = np.round(np.log2(1 + np.arange(4096) / 4096) * _COST_UNITS_PER_BIT).astype(np.int64)


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


@kernel
def _log_cost(n):
    """Return ``n * log2(n)`` in `_COST_UNITS_PER_BIT`, for 0 <= n < 2**36."""
    if n == 0:
        return np.int64(0)
    bits = np.float64(n).view(np.int64)
    log = ((bits >> 52) - 1023) * _COST_UNITS_PER_BIT + _LOG2[(bits >> 40) & 4095]
    return np.int64(n) * log


@kernel
def _table_cost(counts, more):
    """Return what symbols counted in both arguments cost under one table, with the table."""
    total, logs, used, last = np.int64(0), np.int64(0), 0, 0
    for s in range(counts.size):
        count = counts[s] + more[s]
        if count > 0:
            total += count
            logs += _log_cost(count)
            used += 1
            last = s
    return _log_cost(total) - logs + 8 * _COST_UNITS_PER_BIT * (2 + (last >> 3) + used)


@kernel
def _merge_neighbours(tables, most):
    """Merge neighbours among `tables`, int64 (n, alphabet), where it costs least.

    Goes on while it pays, and until at most `most` are left.

    Returns
    -------
    cost : int
        Of the tables that are left and of their symbols.
    owner : int64 (n,)
        The first table of the merged ones that each table went into.
    """
    n, none = tables.shape[0], np.zeros(tables.shape[1], np.int64)
    owner = np.arange(n)
    costs = np.empty(n, np.int64)
    for i in range(n):
        costs[i] = _table_cost(tables[i], none)
    gains = np.empty(n, np.int64)
    never = np.int64(-1) << 62
    gains[n - 1] = never
    for i in range(n - 1):
        gains[i] = costs[i] + costs[i + 1] - _table_cost(tables[i], tables[i + 1])
    following, left = np.arange(1, n + 1), n
    while left > 1:
        best = np.argmax(gains)
        if gains[best] <= 0 and left <= most:
            break
        gone = following[best]
        tables[best] += tables[gone]
        costs[best] = _table_cost(tables[best], none)
        owner[gone], gains[gone] = best, never
        following[best] = following[gone]
        if following[best] < n:
            after = following[best]
            gains[best] = costs[best] + costs[after] - _table_cost(tables[best], tables[after])
        else:
            gains[best] = never
        before = best - 1
        while before >= 0 and owner[before] != before:
            before -= 1
        if before >= 0:
            gains[before] = costs[before] + costs[best] - _table_cost(tables[before], tables[best])
        left -= 1
    total = np.int64(0)
    for i in range(n):
        if owner[i] == i:
            total += costs[i]
        else:
            owner[i] = owner[owner[i]]
    return total, owner


@kernel
def _bin_of(total, n):
    """Return the bin of a mean bit length, ``total / (256 * n)``.

    An eighth of an octave up to two bits, then a quarter of a bit: contexts that hardly ever
    change differ by factors, lively ones by bits.
    """
    mean = 16 * total // n + 1  # in 1/4096 bit
    if mean >= 8192:
        return min(104 + ((mean - 8192) >> 10), _BINS - 1)
    return (np.float64(mean).view(np.int64) >> 49) - 8 * 1023


@kernel
def _totals(counts, lengths, totals, sizes):
    """Write the sum of bit lengths, and the number of symbols, of each context."""
    totals[:] = 0
    for c in range(counts.shape[0]):
        sizes[c] = counts[c].sum()
        if sizes[c] > 0:
            for s in range(counts.shape[1]):
                totals[c] += np.int64(counts[c, s]) * lengths[s]


@kernel
def _share_tables(counts, totals, sizes, table_of, shared):
    """Choose which contexts share a table.

    Contexts of about the same mean bit length start together; neighbours merge from there.

    Parameters
    ----------
    counts : uint32 (contexts, alphabet)
    totals, sizes : int64 (contexts,)
        From `_totals`.
    table_of : uint8 (contexts,)
        Filled: the table of each context. One that does not occur has that of the one before.
    shared : int64 (MAX_TABLES, alphabet)
        Filled: the counts of each table.

    Returns
    -------
    cost : int
        Of the symbols and the tables, in 1/65536 bit.
    n_tables : int
    """
    n_contexts, alphabet = counts.shape
    bins = np.zeros((_BINS, alphabet), np.int64)
    bin_of = np.full(n_contexts, -1)
    occurs = np.zeros(_BINS, np.bool_)
    for c in range(n_contexts):
        if sizes[c] > 0:
            bin_of[c] = _bin_of(totals[c], sizes[c])
            occurs[bin_of[c]] = True
            for s in range(alphabet):
                bins[bin_of[c], s] += counts[c, s]
    present = np.flatnonzero(occurs)
    if present.size == 0:
        return np.int64(0), 0
    cost, owner = _merge_neighbours(bins[present], MAX_TABLES)
    cost += 8 * _CONTEXTS_NBYTES * _COST_UNITS_PER_BIT
    together = _table_cost(bins.sum(axis=0), np.zeros(alphabet, np.int64))
    if together <= cost:
        cost, owner[:] = together, 0
    number = np.empty(_BINS, np.int64)
    n_tables = 0
    shared[:] = 0
    for i in range(present.size):
        if owner[i] == i:
            number[present[i]] = n_tables
            n_tables += 1
        number[present[i]] = number[present[owner[i]]]
        shared[number[present[i]]] += bins[present[i]]
    latest = np.uint8(0)
    for c in range(n_contexts):
        if bin_of[c] >= 0:
            latest = np.uint8(number[bin_of[c]])
        table_of[c] = latest
    return cost, n_tables


@kernel
def _class_cost(classes, coarseness):
    """Return about what the written classes of rows cost, 2**coarseness of them as one."""
    counts = np.zeros(N_CLASSES, np.int64)
    for kind in classes:
        counts[kind >> coarseness] += 1
    logs = np.int64(0)
    for count in counts:
        logs += _log_cost(count)
    return _log_cost(classes.size) - logs


@kernel
def _fold(counts, totals, sizes, kind):
    """Make class `kind` of classes 2 * kind and 2 * kind + 1; those below are done already."""
    for field in range(N_CONTEXTS):
        to = kind * N_CONTEXTS + field
        even = 2 * kind * N_CONTEXTS + field
        odd = even + N_CONTEXTS
        for s in range(counts.shape[1]):
            counts[to, s] = counts[even, s] + counts[odd, s]
        totals[to] = totals[even] + totals[odd]
        sizes[to] = sizes[even] + sizes[odd]


@kernel
def fit_contexts(counts, classes, lengths, table_of, shared):
    """Choose how fine the classes of rows are, and which contexts share a table.

    Parameters
    ----------
    counts : uint32 (classes, 32, alphabet)
        Overwritten.
    classes : uint8 (rows,)
        Replaced by coarser ones, if those cost less.
    lengths : int32 (256,)
    table_of : uint8 (classes * 32,)
        Filled as far as the returned number of classes goes.
    shared : int64 (MAX_TABLES, alphabet)
        Filled.

    Returns
    -------
    n_classes, n_tables : int
    """
    n, alphabet = counts.shape[0], counts.shape[2]
    flat = counts.reshape(n * N_CONTEXTS, alphabet)
    totals = np.empty(n * N_CONTEXTS, np.int64)
    sizes = np.empty_like(totals)
    _totals(flat, lengths, totals, sizes)
    cost, n_tables = _share_tables(flat, totals, sizes, table_of, shared)
    if n == 1:
        return 1, n_tables
    coarseness, m = 0, n
    cost += _class_cost(classes, 0) + n * N_CONTEXTS * _COST_UNITS_PER_BIT
    trial_of, trial = np.empty_like(table_of), np.empty_like(shared)
    for coarser in range(1, CLASS_BITS + 1):
        m = n >> coarser
        for kind in range(m):
            _fold(flat, totals, sizes, kind)
        if coarser in (3, 4):
            continue
        end = m * N_CONTEXTS
        trial_cost, tables = _share_tables(
            flat[:end], totals[:end], sizes[:end], trial_of[:end], trial
        )
        if m > 1:
            trial_cost += _class_cost(classes, coarser) + end * _COST_UNITS_PER_BIT
        if trial_cost < cost:
            cost, n_tables, coarseness = trial_cost, tables, coarser
            table_of[:], shared[:] = trial_of, trial
    for row in range(classes.size):
        classes[row] >>= coarseness
    return n >> coarseness, n_tables
