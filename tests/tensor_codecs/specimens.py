"""Small sound blobs whose decoders together take every branch, to be damaged."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import zstandard

from tensor_codecs.anatomy import Anatomy, assemble
from tensor_codecs.samples import ByteArray
from tstore_codecs.dtypes import DTYPES
from tstore_codecs.registry import CODECS

LOWEST_FIELDS = {"BF16": 110, "F32": 110, "F8_E4M3": 8, "F64": 1000}
DTYPES_SEEN = tuple(LOWEST_FIELDS)
ROWS = 16
FEW, MANY = 300, 4200
"""Elements of streams with 4 and with 32 lanes."""


class Specimen(NamedTuple):
    """A sound blob in parts, its base (empty if it has none) and what it decodes to."""

    name: str
    parts: Anatomy
    base: ByteArray
    target: ByteArray


def highest_symbol(codec: int, dtype: str) -> int:
    """Return the highest symbol of residuals (FORMAT.md, "Residuals")."""
    width = DTYPES[dtype].width
    return 16 * width + 1 if codec == 5 else 32 * width - 5


def relatives(dtype: str, n: int, seed: int = 3) -> tuple[ByteArray, ByteArray]:
    """Return base and target of `n` elements and one byte more, in `ROWS` rows.

    The first rows hardly change and the last ones much, so they are of several classes; a few
    elements change beyond recognition, so that residuals have raw bits in every pass.
    """
    width = DTYPES[dtype].width
    rng = np.random.default_rng(seed)
    kind = np.float64 if dtype == "F64" else np.float32
    values = (0.02 * 2.0 ** rng.integers(0, 4, n)).astype(kind)
    dropped = 8 * max(values.itemsize - width, 0)
    words = (values.view(f"<u{values.itemsize}") >> dropped).astype(f"<u{width}")
    steps = np.repeat(np.minimum(np.arange(ROWS) // 2, 6), -(-n // ROWS))[:n]
    moved = words + (rng.integers(0, 2, n) << steps >> 1).astype(words.dtype)
    wild = rng.integers(0, n, 4)
    moved[wild] = rng.integers(0, 256, 4 * width, np.uint8).view(words.dtype)
    tail = np.array([5], np.uint8)
    return np.append(words.view(np.uint8), tail), np.append(moved.view(np.uint8), tail + 1)


def table(counts: npt.NDArray[np.int64]) -> bytes:
    """Return a written frequency table in about the proportions of `counts`, none of them 0."""
    freqs = 1 + counts * (4096 - counts.size) // counts.sum()
    freqs[0] += 4096 - freqs.sum()
    last = counts.size - 1
    present = ((1 << counts.size) - 1).to_bytes(last // 8 + 1, "little")
    body = b"".join(
        bytes((f,)) if f < 128 else bytes((128 + f % 128, f // 128)) for f in (freqs - 1).tolist()
    )
    return bytes((last,)) + present + body


def model(highest: int, n_tables: int, low: int, n_classes: int, n_rows: int, row: int) -> bytes:
    """Return a model whose tables have all symbols up to `highest`, a little different each."""
    symbols = np.arange(highest + 1)
    parts = [bytes((n_tables,)), *(table(1 + 4000 // (k + 1 + symbols)) for k in range(n_tables))]
    if n_tables > 1:
        parts.append(struct.pack("<BHI", n_classes, low, row if n_classes > 1 else 0))
        choice = bytes(i % n_tables for i in range(32 * n_classes))
        if n_classes > 1:
            classes = bytes(i % n_classes for i in range(n_rows))
            choice = zstandard.ZstdCompressor(level=1).compress(choice + classes)
        parts.append(choice)
    return b"".join(parts)


def specimen(codec: str, dtype: str, n: int, n_chunks: int = 1, classes: int = 0) -> Specimen:
    """Return `n` elements and a byte under `codec`, cut into `n_chunks`.

    `classes` > 0 gives the model two tables, and so many classes of rows.
    """
    base, target = relatives(dtype, n)
    if not CODECS[codec].needs_base:
        base = base[:0]
    size = -(-target.size // n_chunks // 8) * 8 + (0 if n_chunks > 1 else 8)
    row, written = -(-n // ROWS), b""
    if codec in ("fmpp", "ulpack", "ulprow"):
        highest = highest_symbol(CODECS[codec].wire_id, dtype)
        low = LOWEST_FIELDS[dtype]
        written = model(highest, 1 + (classes > 0), low, classes, -(-n // row), row)
    parts = assemble(CODECS[codec], dtype, target, base, size, written)
    return Specimen(f"{codec}-{dtype}-{n}-{n_chunks}-{classes}", parts, base, target)


def specimens(dtypes: Iterable[str] = DTYPES_SEEN) -> list[Specimen]:
    """Return a specimen for every branch of every codec, for each of `dtypes`."""
    found = []
    for dtype in dtypes:
        for codec in CODECS:
            found += [specimen(codec, dtype, FEW), specimen(codec, dtype, 2 * MANY, 2)]
        found += [
            specimen("fmpp", dtype, FEW, 2, 1),
            specimen("ulpack", dtype, FEW, 2, 1),
            specimen("ulprow", dtype, FEW, 2, 3),
            specimen("ulprow", dtype, MANY, 1, 3),
        ]
    return found
