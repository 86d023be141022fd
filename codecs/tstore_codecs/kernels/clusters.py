"""Choosing contexts: how fine the classes of rows are, and which contexts share a table.

ULPack has a table per exponent of the base. Here a context is an exponent and a class of rows, and
contexts of similar statistics share one of at most `MAX_TABLES` tables: fine classes cost little.
Everything is integers, so every machine chooses the same.
"""

import numpy as np

from tstore_codecs.kernels.compiled import kernel
from tstore_codecs.kernels.counts import CLASS_BITS, N_CLASSES
from tstore_codecs.kernels.residuals import N_CONTEXTS

MAX_TABLES = 16
"""Tables of a tensor. More gain less than 0.1 % and leave the L2 cache."""

NOT_TRIED = (3, 4)
"""How often classes are halved without a look: four or two of them rarely win."""

_BINS = 192
_CONTEXTS_NBYTES = 39
"""What a model with more than one table takes besides: choices, classes, lengths."""

_COST_UNITS_PER_BIT = 1 << 16
_LOG2 = np.round(np.log2(1 + np.arange(4096) / 4096) * _COST_UNITS_PER_BIT).astype(np.int64)


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
    costs, owner, following = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    for i in range(n):
        owner[i], following[i] = i, i + 1
        costs[i] = _table_cost(tables[i], none)
    gains = np.empty(n, np.int64)
    never = np.int64(-1) << 62
    gains[n - 1] = never
    for i in range(n - 1):
        gains[i] = costs[i] + costs[i + 1] - _table_cost(tables[i], tables[i + 1])
    left = n
    while left > 1:
        best = 0
        for i in range(1, n):
            if gains[i] > gains[best]:
                best = i
        if gains[best] <= 0 and left <= most:
            break
        gone = following[best]
        for s in range(tables.shape[1]):
            tables[best, s] += tables[gone, s]
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
    for c in range(counts.shape[0]):
        totals[c] = sizes[c] = 0
        for s in range(counts.shape[1]):
            sizes[c] += counts[c, s]
        if sizes[c] > 0:
            for s in range(counts.shape[1]):
                totals[c] += np.int64(counts[c, s]) * lengths[s]


@kernel
def _share_tables(counts, totals, sizes, table_of, shared):
    """Choose which contexts share a table.

    Contexts of about the same mean bit length start together; neighbours merge from there.

    Parameters
    ----------
    counts : int64 (contexts, alphabet)
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
    row_of_bin = np.empty(_BINS, np.int64)
    for i in range(_BINS):
        row_of_bin[i] = -1
    for c in range(n_contexts):
        if sizes[c] > 0:
            row_of_bin[_bin_of(totals[c], sizes[c])] = 0
    n_rows = 0
    for i in range(_BINS):
        if row_of_bin[i] == 0:
            row_of_bin[i] = n_rows
            n_rows += 1
    if n_rows == 0:
        return np.int64(0), 0
    tables = np.zeros((n_rows, alphabet), np.int64)
    everything, none = np.zeros(alphabet, np.int64), np.zeros(alphabet, np.int64)
    for c in range(n_contexts):
        if sizes[c] > 0:
            row = row_of_bin[_bin_of(totals[c], sizes[c])]
            for s in range(alphabet):
                tables[row, s] += counts[c, s]
                everything[s] += counts[c, s]
    cost, owner = _merge_neighbours(tables, MAX_TABLES)
    cost += 8 * _CONTEXTS_NBYTES * _COST_UNITS_PER_BIT
    together = _table_cost(everything, none)
    if together <= cost:
        cost = together
        _copy(everything, tables[0])
        for i in range(n_rows):
            owner[i] = 0
    number = np.zeros(n_rows, np.uint8)
    n_tables = 0
    for i in range(n_rows):
        if owner[i] == i:
            number[i] = n_tables
            _copy(tables[i], shared[n_tables])
            n_tables += 1
        number[i] = number[owner[i]]
    latest = np.uint8(0)
    for c in range(n_contexts):
        if sizes[c] > 0:
            latest = number[row_of_bin[_bin_of(totals[c], sizes[c])]]
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
def _fold(counts, totals, sizes, n, m):
    """Make `m` classes of `n`, neighbours together, in place."""
    for kind in range(n):
        for field in range(N_CONTEXTS):
            old, new = kind * N_CONTEXTS + field, kind // (n // m) * N_CONTEXTS + field
            first = kind % (n // m) == 0
            for s in range(counts.shape[1]):
                counts[new, s] = counts[old, s] + (0 if first else counts[new, s])
            totals[new] = totals[old] + (0 if first else totals[new])
            sizes[new] = sizes[old] + (0 if first else sizes[new])


@kernel
def _copy(source, target):
    """Copy an array; numba's own assignment compiles a message for every way it may fail."""
    for i in range(source.size):
        target[i] = source[i]


@kernel
def fit_contexts(counts, classes, lengths, table_of, shared):
    """Choose how fine the classes of rows are, and which contexts share a table.

    Parameters
    ----------
    counts : int64 (classes, 32, alphabet)
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
    totals, sizes = np.empty(n * N_CONTEXTS, np.int64), np.empty(n * N_CONTEXTS, np.int64)
    _totals(flat, lengths, totals, sizes)
    trial_of, trial = np.empty_like(table_of), np.empty_like(shared)
    best, coarseness, folded, n_tables = np.int64(1) << 62, 0, 0, 0
    for coarser in range(CLASS_BITS + 1):
        m = n >> coarser
        if m == 0 or coarser in NOT_TRIED:
            continue
        if coarser > 0:
            _fold(flat, totals, sizes, n >> folded, m)
        folded = coarser
        end = m * N_CONTEXTS
        cost, tables = _share_tables(flat[:end], totals, sizes, trial_of, trial)
        if m > 1:
            cost += _class_cost(classes, coarser) + end * _COST_UNITS_PER_BIT
        if cost < best:
            best, coarseness, n_tables = cost, coarser, tables
            _copy(trial_of, table_of)
            _copy(trial.reshape(-1), shared.reshape(-1))
    for row in range(classes.size):
        classes[row] >>= coarseness
    return n >> coarseness, n_tables
