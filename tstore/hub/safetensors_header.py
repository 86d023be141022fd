"""The safetensors header: where the tensors of a file lie. Trusts no byte of it.

A file is the header's length (8 bytes, little-endian), the header (a JSON object, maybe padded
with spaces) and the data section, which the tensors must tile exactly. Each rule that a header
can break has its own error class (`tstore.errors.LayoutError` and below).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from reprlib import Repr
from typing import Any, NoReturn

from tstore.errors import (
    DuplicateKeyError,
    HeaderNotJsonError,
    HeaderNotUtf8Error,
    HeaderTooLargeError,
    HeaderTruncatedError,
    HoleError,
    InvalidEntryError,
    OffsetRangeError,
    OverlapError,
    SizeMismatchError,
    UnknownDtypeError,
)
from tstore.hub.reader import SourceReader
from tstore.ids import OPAQUE
from tstore_codecs.dtypes import DTYPES

MAX_HEADER_NBYTES = 100_000_000
"""The format's own limit."""
LENGTH_NBYTES = 8
MAX_INT = (1 << 63) - 1
"""Offsets, dimensions and element counts must fit the int64 columns of the catalog."""
MAX_INT_DIGITS = 20
"""Longer numbers are refused unparsed: converting digits takes quadratic time."""

_FIELDS = frozenset(("dtype", "shape", "data_offsets"))
_METADATA = "__metadata__"
_BITS = {name: dtype.bits for name, dtype in DTYPES.items() if name != OPAQUE}

_repr = Repr()
_repr.maxstring = _repr.maxother = 120
_show = _repr.repr


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """A tensor in a file; `start` and `stop` are offsets from the beginning of the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


def read_entries(reader: SourceReader) -> list[TensorEntry]:
    """Read and parse the header of an open safetensors file.

    Returns
    -------
    list[TensorEntry]
        Sorted by (start, stop); together they cover all bytes after the header.

    Raises
    ------
    LayoutError
        One of its subclasses: the file is not valid safetensors.
    """
    file_nbytes = reader.file.size
    if file_nbytes < LENGTH_NBYTES:
        raise HeaderTruncatedError(
            f"expected at least {LENGTH_NBYTES} bytes (the header length), "
            f"found a file of {file_nbytes}; incomplete download?"
        )
    header_nbytes = int.from_bytes(reader.read(0, LENGTH_NBYTES).tobytes(), "little")
    if header_nbytes > MAX_HEADER_NBYTES:
        raise HeaderTooLargeError(
            f"expected a header of at most {MAX_HEADER_NBYTES} bytes, found length "
            f"{header_nbytes}; is it a web page or a Git LFS pointer?"
        )
    if header_nbytes > file_nbytes - LENGTH_NBYTES:
        raise HeaderTruncatedError(
            f"expected a header of {header_nbytes} bytes, found {file_nbytes - LENGTH_NBYTES} "
            "bytes after its length; incomplete download?"
        )
    header = reader.read(LENGTH_NBYTES, LENGTH_NBYTES + header_nbytes)
    return parse_header(header.tobytes(), file_nbytes)


def parse_header(header: bytes, file_nbytes: int) -> list[TensorEntry]:
    """Parse a header and check that its tensors tile the data section.

    Parameters
    ----------
    header : bytes
        The JSON text, without the length before it.
    file_nbytes : int
        Size of the whole file; its data section begins at ``8 + len(header)``.

    Returns
    -------
    list[TensorEntry]
        Sorted by (start, stop). Zero-size tensors are in it.

    Raises
    ------
    LayoutError
        One of its subclasses, by the rule that is broken.
    """
    data_start = LENGTH_NBYTES + len(header)
    if file_nbytes < data_start:
        raise HeaderTruncatedError(
            f"expected at least {data_start} bytes, found a file of {file_nbytes}; "
            "incomplete download?"
        )
    table = _load_object(header)
    _check_metadata(table.pop(_METADATA, {}))
    entries = [_parse_entry(name, fields, data_start) for name, fields in table.items()]
    entries.sort(key=lambda entry: (entry.start, entry.stop))
    _check_tiling(entries, data_start, file_nbytes)
    return entries


def _load_object(header: bytes) -> dict[str, Any]:
    try:
        text = header.decode("utf-8")
    except UnicodeDecodeError as error:
        raise HeaderNotUtf8Error(
            f"expected a header in UTF-8, found {error.reason} at byte {error.start}"
        ) from error
    if not text.startswith("{"):
        raise HeaderNotJsonError(
            f"expected a header that begins with '{{', found {_show(text[:8])}"
        )
    try:
        table: dict[str, Any] = json.loads(
            text,
            object_pairs_hook=_unique_keys,
            parse_int=_parse_int,
            parse_constant=_refuse_constant,
        )
    except (json.JSONDecodeError, RecursionError) as error:
        raise HeaderNotJsonError(
            f"expected the header to be one JSON object, found: {error}"
        ) from error
    return table


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for key, value in pairs:
        if key in table:
            raise DuplicateKeyError(f"expected each key once, found {_show(key)} twice")
        table[key] = value
    return table


def _parse_int(digits: str) -> int:
    if len(digits) > MAX_INT_DIGITS:
        raise InvalidEntryError(
            f"expected integers of at most {MAX_INT_DIGITS} digits, found {len(digits)}"
        )
    return int(digits)


def _refuse_constant(constant: str) -> NoReturn:
    raise HeaderNotJsonError(f"expected JSON, which has no {constant}")


def _check_metadata(metadata: object) -> None:
    if not isinstance(metadata, dict):
        raise InvalidEntryError(f"expected {_METADATA} to be an object, found {_show(metadata)}")
    for key, value in metadata.items():
        if not isinstance(value, str):
            raise InvalidEntryError(
                f"expected text at {_METADATA}[{_show(key)}], found {_show(value)}"
            )


def _parse_entry(name: str, fields: object, data_start: int) -> TensorEntry:
    if not _is_unicode(name):
        raise InvalidEntryError(f"expected a name without lone surrogates, found {_show(name)}")
    if not isinstance(fields, dict) or fields.keys() != _FIELDS:
        raise InvalidEntryError(
            f"expected tensor {_show(name)} with exactly {sorted(_FIELDS)}, found {_show(fields)}"
        )
    dtype, shape = fields["dtype"], fields["shape"]
    if not isinstance(dtype, str):
        raise InvalidEntryError(f"expected dtype of {_show(name)} to be text, found {_show(dtype)}")
    if not _is_sizes(shape):
        raise InvalidEntryError(
            f"expected shape of {_show(name)} to be integers in [0, {MAX_INT}], "
            f"found {_show(shape)}"
        )
    offsets = fields["data_offsets"]
    if not _is_sizes(offsets) or len(offsets) != 2:
        raise InvalidEntryError(
            f"expected data_offsets of {_show(name)} to be two integers in [0, {MAX_INT}], "
            f"found {_show(offsets)}"
        )
    start, stop = offsets
    if start > stop:
        raise OffsetRangeError(f"expected start <= stop of {_show(name)}, found {offsets}")
    expected = _nbytes(name, dtype, shape)
    if stop - start != expected:
        raise SizeMismatchError(
            f"expected {expected} bytes for {_show(name)} ({dtype} {_show(shape)}), "
            f"found {stop - start} between its offsets"
        )
    return TensorEntry(name, dtype, tuple(shape), data_start + start, data_start + stop)


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _is_sizes(value: object) -> bool:
    # type(), not isinstance(): True and False are no sizes.
    return isinstance(value, list) and all(type(v) is int and 0 <= v <= MAX_INT for v in value)


def _nbytes(name: str, dtype: str, shape: list[int]) -> int:
    """Bytes of a tensor; `name` is for the errors."""
    if dtype not in _BITS:
        raise UnknownDtypeError(
            f"expected the dtype of {_show(name)} among {sorted(_BITS)}, found {_show(dtype)}"
        )
    n_bits = 0 if 0 in shape else _BITS[dtype]
    for dim in shape:
        n_bits *= dim
        if n_bits > 8 * MAX_INT:
            raise SizeMismatchError(
                f"expected {_show(name)} to have at most {MAX_INT} bytes, "
                f"found shape {_show(shape)}"
            )
    if n_bits % 8:
        raise SizeMismatchError(
            f"expected {_show(name)} to fill whole bytes, "
            f"found {n_bits} bits ({dtype} {_show(shape)})"
        )
    return n_bits // 8


def _check_tiling(entries: list[TensorEntry], data_start: int, file_nbytes: int) -> None:
    at = data_start
    for entry in entries:
        if entry.stop > file_nbytes:
            raise OffsetRangeError(
                f"expected {_show(entry.name)} to end within the file's {file_nbytes} bytes, "
                f"found its end at {entry.stop}; incomplete download?"
            )
        if entry.start < at:
            raise OverlapError(
                f"expected {_show(entry.name)} to start at {at}, found {entry.start}: "
                "it shares bytes with another"
            )
        if entry.start > at:
            raise HoleError(
                f"expected {_show(entry.name)} to start at {at}, found {entry.start}: "
                "the bytes between belong to no tensor"
            )
        at = entry.stop
    if at != file_nbytes:
        raise HoleError(
            f"expected the file to end at {at} with its last tensor, found {file_nbytes} bytes: "
            "the rest belongs to no tensor"
        )
