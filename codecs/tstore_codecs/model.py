"""The model of residuals: which tables a tensor has, and which element takes which. FORMAT.md."""

from __future__ import annotations

import functools
import struct
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from tstore_codecs import zstd_frames
from tstore_codecs.base import Mapper
from tstore_codecs.buffers import ByteArray, as_bytes, words_of
from tstore_codecs.dtypes import Dtype
from tstore_codecs.errors import CorruptBlobError
from tstore_codecs.kernels import clusters
from tstore_codecs.kernels import counts as counting
from tstore_codecs.kernels import freqs as frequencies
from tstore_codecs.kernels.lanes import BITS_PER_PASS
from tstore_codecs.kernels.ordered import Contexts, Elements
from tstore_codecs.kernels.rans import TILE
from tstore_codecs.kernels.residuals import MSB_SHIFT, N_CONTEXTS
from tstore_codecs.limits import (
    DEFAULT_ROW_LENGTH,
    MAX_MODEL_TABLES,
    MAX_PART_ELEMENTS,
    MAX_PARTS,
    MIN_ROW_LENGTH,
    MIN_ROWS,
    PLANE_ZSTD_LEVEL,
)
from tstore_codecs.plane import take
from tstore_codecs.tables import normalised, read_table, write_table

_HEADER: Final = struct.Struct("<BHI")  # classes, lowest field, row length
_ALPHABETS: Final = {1: 32, 2: 64, 4: 128, 8: 256}  # symbols per bytes of an element
_ALL_ROWS: Final = 1 << 40
_NO_CLASSES: Final = np.zeros(1, np.uint8)
_ONE_TABLE: Final = np.empty(0, np.uint8)


@dataclass(frozen=True)
class ResidualModel:
    """What codes the residuals of one tensor.

    Attributes
    ----------
    elements, contexts
        Arguments of the kernels.
    freqs
        uint32 (tables, 256); each sums to 4096.
    """

    elements: Elements
    contexts: Contexts
    freqs: npt.NDArray[np.uint32]

    @functools.cached_property
    def ranges(self) -> npt.NDArray[np.uint32]:
        """Return what `kernels.rans` encodes with, uint32 (256 * tables,)."""
        ranges = np.empty((len(self.freqs), 256), np.uint32)
        for freqs, row in zip(self.freqs, ranges, strict=True):
            frequencies.encode_ranges(freqs, row)
        return ranges.reshape(-1)

    @functools.cached_property
    def slots(self) -> npt.NDArray[np.uint32]:
        """Return what `kernels.rans` decodes with, uint32 (4096 * tables,)."""
        slots = np.empty((len(self.freqs), frequencies.PROB_TOTAL), np.uint32)
        for freqs, row in zip(self.freqs, slots, strict=True):
            frequencies.decode_slots(freqs, row)
        return slots.reshape(-1)


def elements_of(dtype: Dtype, shift: int) -> Elements:
    """Return what the kernels need to know about `dtype`; `shift` names the kind of symbols."""
    bits = 8 * dtype.width
    wide = np.uint64 if bits == 64 else np.uint32
    half = wide(1 << (bits - 1))
    return Elements(half, dtype.signed_float, np.uint8(shift), -(-bits // BITS_PER_PASS))


def context_shift(dtype: Dtype) -> int:
    """Return how many low bits of a base element its context leaves out.

    The mantissa of a float; of 8-bit floats as much as leaves five bits; all of an integer.
    """
    if not dtype.signed_float:
        return 8 * dtype.width - 1
    return dtype.mantissa_bits if dtype.width > 1 else 2


def _highest_symbol(dtype: Dtype, shift: int) -> int:
    """Return the symbol of the largest change; one above would have more bits than an element."""
    bits = 8 * dtype.width
    return 2 * bits + 1 if shift == MSB_SHIFT else 4 * bits - 5


def fit(
    target: ByteArray,
    base: ByteArray,
    dtype: Dtype,
    shift: int,
    row_length: int | None,
    mapper: Mapper,
) -> ResidualModel:
    """Return the model of a tensor.

    Parameters
    ----------
    target, base
        uint8 (n,).
    shift
        `residuals.MSB_SHIFT` (one table for all) or `residuals.ULP_SHIFT`.
    row_length
        Elements per row, 0 if unknown. None: rows make no difference.
    mapper
        Runs the count.
    """
    elements = elements_of(dtype, shift)
    ours, theirs = words_of(target, dtype), words_of(base, dtype)
    dropped, low = context_shift(dtype), 0
    if shift == MSB_SHIFT:
        dropped = 8 * dtype.width - 1
    else:
        highest = counting.highest_field(theirs, elements.half, dropped)
        low = max(highest + 2 - N_CONTEXTS, 0)
    length = _fitting_row(row_length or DEFAULT_ROW_LENGTH)
    n_rows = -(-ours.size // length)
    alphabet = _ALPHABETS[dtype.width]
    deviations = np.empty((0, alphabet), np.int16)
    if row_length is not None and n_rows >= MIN_ROWS:
        deviations = np.empty((N_CONTEXTS, alphabet), np.int16)
        counting.sample_deviations(ours, theirs, elements, dropped, low, deviations)
    n_classes = counting.N_CLASSES if deviations.size else 1
    classes = np.empty(n_rows, np.uint8)
    per_part = max(-(-n_rows // MAX_PARTS), 1)
    per_part = min(per_part, MAX_PART_ELEMENTS // length)

    def count(row: int) -> npt.NDArray[np.uint32]:
        counts = np.zeros((n_classes, N_CONTEXTS, alphabet), np.uint32)
        part = slice(row * length, (row + per_part) * length)
        counting.count_rows(
            ours[part],
            theirs[part],
            elements,
            dropped,
            low,
            length,
            deviations,
            classes[row : row + per_part],
            counts,
        )
        return counts

    counts = np.zeros((n_classes, N_CONTEXTS, alphabet), np.int64)
    for part in mapper(count, range(0, n_rows, per_part)):
        counts += part
    return _chosen(elements, counts, classes, Contexts(dropped, low, length, classes, _ONE_TABLE))


def _fitting_row(length: int) -> int:
    """Return a row length that suits the kernels: short rows together, long ones in equal parts."""
    if length < MIN_ROW_LENGTH:
        return length * -(-MIN_ROW_LENGTH // length)
    least = -(-length // TILE)
    for parts in range(least, length // MIN_ROW_LENGTH + 1):
        if length % parts == 0:
            return length // parts
    return -(-length // least)


def _chosen(
    elements: Elements,
    counts: npt.NDArray[np.int64],
    classes: ByteArray,
    contexts: Contexts,
) -> ResidualModel:
    """Return the model that suits `counts`, int64 (classes, 32, alphabet)."""
    lengths = np.empty(256, np.int32)
    counting.symbol_lengths(elements.shift, lengths)
    table_of = np.zeros(len(counts) * N_CONTEXTS, np.uint8)
    shared = np.zeros((clusters.MAX_TABLES, counts.shape[2]), np.int64)
    n_classes, n_tables = clusters.fit_contexts(counts, classes, lengths, table_of, shared)
    if n_tables == 0:  # no elements at all
        n_tables, shared[0], shared[0, 0] = 1, 0, 1
    freqs = np.array([normalised(row) for row in shared[:n_tables]])
    if n_tables > 1:
        contexts = contexts._replace(choice=table_of[: n_classes * N_CONTEXTS].copy())
    if n_tables == 1 or n_classes == 1:
        contexts = contexts._replace(row_length=_ALL_ROWS, classes=_NO_CLASSES)
    return ResidualModel(elements, contexts, freqs)


def write_model(model: ResidualModel) -> bytes:
    """Return `model` as the bytes that `read_model` takes."""
    contexts, freqs = model.contexts, model.freqs
    parts = [bytes((len(freqs),)), *map(write_table, freqs)]
    if contexts.choice.size:
        n_classes = contexts.choice.size // N_CONTEXTS
        row_length = contexts.row_length if n_classes > 1 else 0
        parts.append(_HEADER.pack(n_classes, contexts.low, row_length))
        if n_classes > 1:
            choice = np.concatenate((contexts.choice, contexts.classes))
            parts.append(zstd_frames.compress(as_bytes(choice), PLANE_ZSTD_LEVEL))
        else:
            parts.append(contexts.choice.tobytes())
    return b"".join(parts)


def read_model(data: ByteArray, dtype: Dtype, raw_nbytes: int, shift: int) -> ResidualModel:
    """Return the model of a tensor of `raw_nbytes` bytes, all of it checked.

    Raises
    ------
    CorruptBlobError
        If `data` is not exactly a model of such a tensor.
    """
    n_tables, at = int(take(data, 0, 1)[0]), 1
    if not 0 < n_tables <= MAX_MODEL_TABLES:
        raise CorruptBlobError(f"expected 1 to {MAX_MODEL_TABLES} tables; found {n_tables}")
    freqs = np.empty((n_tables, 256), np.uint32)
    for row in freqs:
        row[:], nbytes = read_table(data[at:])
        at += nbytes
    highest = _highest_symbol(dtype, shift)
    if freqs[:, highest + 1 :].any():
        raise CorruptBlobError(f"expected symbols up to {highest} in a table; found a higher one")
    rest = data[at:]
    contexts = Contexts(context_shift(dtype), 0, _ALL_ROWS, _NO_CLASSES, _ONE_TABLE)
    if n_tables > 1:
        contexts = _read_contexts(rest, contexts, raw_nbytes // dtype.width, n_tables)
    elif rest.size:
        raise CorruptBlobError(f"expected a model to end after its table; found {rest.size} bytes")
    return ResidualModel(elements_of(dtype, shift), contexts, freqs)


def _read_contexts(rest: ByteArray, contexts: Contexts, n: int, n_tables: int) -> Contexts:
    """Return `contexts` as `rest` tells, for a tensor of `n` elements with `n_tables` tables."""
    n_classes, low, row_length = _HEADER.unpack(take(rest, 0, _HEADER.size).tobytes())
    # A copy: the kernels index with it unchecked, and the blob's buffer is not ours.
    choice, classes = rest[_HEADER.size :].copy(), _NO_CLASSES
    if not 0 < n_classes <= counting.N_CLASSES or (row_length > 0) != (n_classes > 1):
        raise CorruptBlobError(f"found {n_classes} classes of rows of {row_length} elements")
    if n_classes > 1:
        n_rows = -(-n // row_length)
        # A copy is writable as the constants are: one compiled variant for all.
        choice = zstd_frames.decompress(choice, n_classes * N_CONTEXTS + n_rows).copy()
        choice, classes = np.split(choice, [n_classes * N_CONTEXTS])
    else:
        row_length = _ALL_ROWS
    if choice.size != n_classes * N_CONTEXTS:
        raise CorruptBlobError(f"expected {n_classes * N_CONTEXTS} contexts; found {choice.size}")
    if choice.max() >= n_tables or classes.max(initial=0) >= n_classes:
        raise CorruptBlobError("a context names a table, or a row a class, that is not there")
    return contexts._replace(low=low, row_length=row_length, classes=classes, choice=choice)
