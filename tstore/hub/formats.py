"""File formats: how the bytes of a file are cut into extents.

An extent is a tensor, or a piece of opaque bytes between tensors. The extents of a file, one
after the other, are the file. To add a format, write a class with the three members of `Format`
and append an instance to `FORMATS`; everything that its `entries` does not name stays opaque, so
a format need only know where its tensors are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Protocol

from tstore.errors import LayoutError
from tstore.hub.reader import SourceReader
from tstore.hub.safetensors_header import TensorEntry, read_entries
from tstore.ids import OPAQUE


@dataclass(frozen=True, slots=True)
class Extent:
    """Bytes [`start`, `stop`) of a file.

    Attributes
    ----------
    index : int
        Position in the file's list of extents.
    name : str or None
        The tensor's name; None for opaque bytes.
    dtype : str
        The tensor's dtype; `tstore.ids.OPAQUE` for opaque bytes.
    shape : tuple[int, ...]
        The tensor's shape; the number of bytes for opaque ones.
    part : int or None
        Number of the part, from 0, if the tensor was cut; `shape` is then that of the part.
    """

    index: int
    name: str | None
    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int
    part: int | None = None

    @property
    def nbytes(self) -> int:
        """Raw bytes."""
        return self.stop - self.start


class Format(Protocol):
    """A kind of file that holds tensors."""

    @property
    def name(self) -> str:
        """Short name for reports."""

    def matches(self, path: str) -> bool:
        """Whether a file of this name should be parsed as this format."""

    def entries(self, reader: SourceReader) -> list[TensorEntry]:
        """Tensors in file order, none sharing bytes with another.

        Raises
        ------
        LayoutError
            The file is not valid; it will be kept as opaque bytes.
        """


class SafetensorsFormat:
    """https://github.com/huggingface/safetensors#format"""

    name = "safetensors"

    def matches(self, path: str) -> bool:
        """Whether the name ends in ``.safetensors``."""
        return path.endswith(".safetensors")

    def entries(self, reader: SourceReader) -> list[TensorEntry]:
        """See `tstore.hub.safetensors_header.read_entries`."""
        return read_entries(reader)


FORMATS: tuple[Format, ...] = (SafetensorsFormat(),)


def file_extents(
    reader: SourceReader, path: str, *, opaque_nbytes: int, tensor_nbytes: int
) -> tuple[list[Extent], LayoutError | None]:
    """Cut a file into extents.

    Parameters
    ----------
    reader : SourceReader
        The open file.
    path : str
        Its name, which decides the format.
    opaque_nbytes : int
        Opaque bytes are cut at this size.
    tensor_nbytes : int
        Larger tensors are cut into parts of at most this size, along their rows, so that whoever
        works on them needs memory for a part only. At least `_WORD_NBYTES`.

    Returns
    -------
    extents : list[Extent]
        They tile [0, size) in order. Zero-size tensors are among them, with start == stop.
    error : LayoutError or None
        Why a file that should hold tensors was cut as opaque bytes; to be reported.
    """
    entries: list[TensorEntry] = []
    problem: LayoutError | None = None
    for file_format in FORMATS:
        if file_format.matches(path):
            try:
                entries = file_format.entries(reader)
            except LayoutError as error:
                # A fresh one: the traceback and cause of `error` keep the whole header alive.
                problem = type(error)(str(error))
            break
    pieces = _cut(entries, reader.file.size, opaque_nbytes, tensor_nbytes)
    return [Extent(index, *piece) for index, piece in enumerate(pieces)], problem


_Piece = tuple[str | None, str, tuple[int, ...], int, int, int | None]

_WORD_NBYTES = 48
"""Holds a whole number of elements of any dtype, also of those of 4, 6 and 128 bits."""


def _cut(
    entries: Iterable[TensorEntry], size: int, opaque_nbytes: int, tensor_nbytes: int
) -> Iterator[_Piece]:
    at = 0
    for entry in entries:
        yield from _opaque(at, entry.start, opaque_nbytes)
        yield from _tensor(entry, tensor_nbytes)
        at = entry.stop
    yield from _opaque(at, size, opaque_nbytes)


def _opaque(start: int, stop: int, opaque_nbytes: int) -> Iterator[_Piece]:
    for at in range(start, stop, opaque_nbytes):
        end = min(at + opaque_nbytes, stop)
        yield None, OPAQUE, (end - at,), at, end, None


def _tensor(entry: TensorEntry, limit: int) -> Iterator[_Piece]:
    if entry.stop - entry.start <= limit:
        yield entry.name, entry.dtype, entry.shape, entry.start, entry.stop, None
        return
    row, count, tail = _rows(entry, limit)
    step = limit // row * row
    for part, start in enumerate(range(entry.start, entry.stop, step)):
        stop = min(start + step, entry.stop)
        first = (stop - start) * count // (entry.stop - entry.start)
        yield entry.name, entry.dtype, (first, *tail), start, stop, part


def _rows(entry: TensorEntry, limit: int) -> tuple[int, int, tuple[int, ...]]:
    """Where a tensor may be cut: bytes per row, its rows, and the shape of a row.

    As few leading dimensions as will do are taken together. The rows of a dtype whose elements
    are no whole bytes may be single elements, cut between words.
    """
    nbytes = entry.stop - entry.start
    for n_leading in range(1, len(entry.shape) + 1):
        rows = prod(entry.shape[:n_leading])
        if not nbytes % rows and nbytes // rows <= limit:
            return nbytes // rows, rows, entry.shape[n_leading:]
    return _WORD_NBYTES, prod(entry.shape), ()
