"""Damaged and invented blobs for `fuzz`, all with sound checksums of head and payloads."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import zstandard

from tensor_codecs.anatomy import CODED, Anatomy, Piece
from tensor_codecs.samples import ByteArray
from tensor_codecs.specimens import Specimen, highest_symbol, specimens, table
from tstore_codecs.dtypes import DTYPES
from tstore_codecs.registry import CODECS

Rng = np.random.Generator
ODD_BYTES = (0, 1, 2, 3, 31, 32, 64, 127, 128, 254, 255)
ODD_WORDS = (0, 1, 3, 2**16 - 1, 2**16, 2**20, 2**31 - 1, 2**31, 2**32 - 1)


class Case(NamedTuple):
    """A blob to decode, its base (empty: none), and what kind of damage it has."""

    name: str
    kind: str
    blob: bytes
    base: ByteArray


def damaged(rng: Rng, data: bytes) -> bytes:
    """Return `data` with one kind of damage."""
    changed = bytearray(data)
    at = int(rng.integers(0, len(data) + 1))
    near = int(rng.integers(0, min(len(data), 48) + 1))
    at = int(rng.choice([at, near, len(data) - near]))  # headers, and what follows tables
    match rng.integers(0, 7):
        case 0 if at < len(data):
            changed[at] ^= 1 << int(rng.integers(0, 8))
        case 1 if at < len(data):
            changed[at] = rng.choice(ODD_BYTES)
        case 2:
            changed[at : at + 4] = struct.pack("<I", rng.choice(ODD_WORDS))
        case 3:
            del changed[at : at + int(rng.integers(1, 9))]
        case 4:
            changed[at:at] = rng.integers(0, 256, int(rng.integers(1, 9)), np.uint8).tobytes()
        case 5:
            span = int(rng.integers(1, 33))
            changed[at : at + span] = rng.integers(0, 256, span, np.uint8).tobytes()
        case _:
            del changed[at:]
    return bytes(changed)


def mutated(rng: Rng, found: Specimen) -> Case:
    """Return `found` with damage to its model, a payload, or its numbers."""
    parts, base, kind = found.parts, found.base, "payload"
    i = int(rng.integers(0, len(parts.pieces)))
    choice = rng.random()
    if choice < 0.3 and parts.model:
        parts, kind = replace(parts, model=damaged(rng, parts.model)), "model"
    elif choice < 0.4:
        kind, raw_nbytes = "size", parts.raw_nbytes + int(rng.integers(-20, 21))
        size = -(-raw_nbytes // len(parts.pieces) // 8) * 8
        parts = replace(parts, raw_nbytes=raw_nbytes, chunk_nbytes=size)
        base = np.resize(base, raw_nbytes) if base.size else base
    elif choice < 0.5:
        kind = "ids"
        codec = rng.choice([c.wire_id for c in CODECS.values() if c.needs_base == bool(base.size)])
        parts = replace(parts, codec=int(codec), dtype=int(rng.integers(0, len(DTYPES))))
    else:
        for _ in range(int(rng.integers(1, 4))):
            parts = parts.with_payload(i, damaged(rng, parts.pieces[i].payload))
    return Case(found.name, kind, parts.seal(), base)


def any_table(rng: Rng, highest: int) -> bytes:
    """Return a sound table of random symbols up to `highest`."""
    symbols = 1 + int(rng.integers(0, highest + 1))
    return table(rng.integers(0, 1 << int(rng.integers(1, 20)), symbols) + 1)


def invented_model(rng: Rng, highest: int, n: int) -> bytes:
    """Return a sound model of `n` elements made of random choices."""
    n_tables = int(rng.choice([1, 2, 3, 64]))
    parts = [bytes((n_tables,)), *(any_table(rng, highest) for _ in range(n_tables))]
    if n_tables > 1:
        n_classes = int(rng.choice([1, 2, 31, 32]))
        row = int(rng.choice([1, 7, 32, n, n + 1, 2**32 - 1])) if n_classes > 1 else 0
        rows = -(-n // row) if row else 0
        wrong = int(rng.random() < 0.1)
        choice = rng.integers(0, n_tables + wrong, 32 * n_classes, np.uint8).tobytes()
        classes = rng.integers(0, n_classes + wrong, rows, np.uint8).tobytes()
        parts.append(struct.pack("<BHI", n_classes, int(rng.choice([0, 5, 110, 2**16 - 1])), row))
        written = choice + classes
        parts.append(zstandard.compress(written) if n_classes > 1 else written)
    return b"".join(parts)


def invented_stream(rng: Rng, n: int, room: int) -> bytes:
    """Return states and words of a stream of `n` symbols in up to `room` bytes.

    It is bad only in where it ends: kernels find out after they have decoded some of it.
    """
    lanes = 32 if n >= 4096 else 4
    states = rng.integers(1 << 16, 1 << int(rng.integers(17, 33)), lanes, np.uint32)
    n_words = min(int(rng.choice([0, 1, 31, 32, 33, n // 2, n, 2 * n])), room // 2 - 2 * lanes)
    return states.tobytes() + rng.integers(0, 1 << 16, max(n_words, 0), np.uint16).tobytes()


def invented(rng: Rng) -> Case:
    """Return a blob that nobody wrote: sound tables, random states and words."""
    codec = CODECS[rng.choice(["zipnn", "tensorx", "fmpp", "ulpack", "ulprow"])]
    dtype = DTYPES[rng.choice(["BF16", "F32", "F8_E4M3", "F64", "I16", "U8", "C64"])]
    n = int(rng.choice([5, 100, 2047, 4095, 4096, 4097, 6200]))
    tail = int(rng.integers(0, dtype.width))
    base = rng.integers(0, 256, n * dtype.width + tail, np.uint8)
    model, payload = b"", bytes(tail)
    if codec.name in ("zipnn", "tensorx"):
        for _ in range(dtype.width):
            written = any_table(rng, 255 if n > 1000 else 9)
            stream = written + invented_stream(rng, n, n - 5 - len(written))
            payload += struct.pack("<BI", 2, len(stream)) + stream
    else:
        model = invented_model(rng, highest_symbol(codec.wire_id, dtype.name), n)
        payload += invented_stream(rng, n, n * dtype.width)
    size = -(-base.size // 8) * 8
    pieces = (Piece(CODED, payload),)
    flags = int(codec.needs_base)
    parts = Anatomy(codec.wire_id, dtype.wire_id, base.size, pieces, model, size, flags)
    return Case(f"{codec.name}-{dtype.name}", "invented", parts.seal(), base if flags else base[:0])


def cases(rng: Rng) -> Iterator[Case]:
    """Yield cases without end."""
    sound = [found for found in specimens() if found.parts.model or rng.random() < 0.6]
    while True:
        yield invented(rng)
        yield mutated(rng, sound[int(rng.integers(0, len(sound)))])
