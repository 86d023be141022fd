"""Blobs taken apart, changed, and sealed again with sound checksums, as an attacker would.

Written from FORMAT.md; the checksums are those of the xxhash package. Lies about sizes and
checksums are overrides: what is None is computed.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from itertools import pairwise

import xxhash

from tensor_codecs.samples import ByteArray
from tstore_codecs.base import Codec
from tstore_codecs.buffers import as_bytes
from tstore_codecs.dtypes import DTYPES

HEADER = struct.Struct("<4s4BQII")
MAGIC = b"\xa7TSB"
CODED, RAW, ZSTD, ZSTD_DELTA = range(4)


@dataclass(frozen=True)
class Piece:
    """One chunk: its form, its payload, the XXH64 of its raw bytes and of those of the base."""

    form: int
    payload: bytes
    raw_sum: int = 0
    base_sum: int = 0
    payload_sum: int | None = None
    size: int | None = None

    def entry(self, has_base: bool) -> bytes:
        """Return the line of the chunk table."""
        size = len(self.payload) if self.size is None else self.size
        found = xxhash.xxh64_intdigest(self.payload)
        payload_sum = found if self.payload_sum is None else self.payload_sum
        entry = struct.pack("<IQQ", self.form << 30 | size, payload_sum, self.raw_sum)
        return entry + struct.pack("<Q", self.base_sum) if has_base else entry


@dataclass(frozen=True)
class Anatomy:
    """A blob in parts."""

    codec: int
    dtype: int
    raw_nbytes: int
    pieces: tuple[Piece, ...]
    model: bytes = b""
    chunk_nbytes: int = 1 << 20
    flags: int = 0
    magic: bytes = MAGIC
    version: int = 1
    model_nbytes: int | None = None
    head_sum: int | None = None
    rest: bytes = b""

    def seal(self) -> bytes:
        """Return the blob, with every checksum that is not overridden made sound."""
        model_nbytes = len(self.model) if self.model_nbytes is None else self.model_nbytes
        ids = (self.version, self.codec, self.dtype, self.flags)
        header = HEADER.pack(self.magic, *ids, self.raw_nbytes, self.chunk_nbytes, model_nbytes)
        entries = (piece.entry(bool(self.flags & 1)) for piece in self.pieces)
        head = b"".join((header, *entries, self.model))
        found = xxhash.xxh64_intdigest(head)
        head_sum = found if self.head_sum is None else self.head_sum
        payloads = (piece.payload for piece in self.pieces)
        return b"".join((head, head_sum.to_bytes(8, "little"), *payloads, self.rest))

    def with_payload(self, i: int, payload: bytes) -> Anatomy:
        """Return the same with another payload of chunk `i`."""
        pieces = list(self.pieces)
        pieces[i] = replace(pieces[i], payload=payload)
        return replace(self, pieces=tuple(pieces))


def take_apart(blob: bytes) -> Anatomy:
    """Return the parts of a sound blob."""
    magic, version, codec, dtype, flags, raw_nbytes, chunk_nbytes, model_nbytes = (
        HEADER.unpack_from(blob)
    )
    n_chunks, at, lines = -(-raw_nbytes // chunk_nbytes), HEADER.size, []
    layout = struct.Struct("<IQQQ" if flags & 1 else "<IQQ")
    for _ in range(n_chunks):
        lines.append(layout.unpack_from(blob, at))
        at += layout.size
    model = blob[at : at + model_nbytes]
    at += model_nbytes + 8
    pieces = []
    for line in lines:
        form, size = divmod(line[0], 1 << 30)
        pieces.append(Piece(form, blob[at : at + size], *line[2:]))
        at += size
    return Anatomy(
        codec, dtype, raw_nbytes, tuple(pieces), model, chunk_nbytes, flags, magic, version
    )


def assemble(
    codec: Codec, dtype: str, target: ByteArray, base: ByteArray, chunk_nbytes: int, model: bytes
) -> Anatomy:
    """Return `target` in chunks of `chunk_nbytes`, as small as wanted, coded under `model`."""
    kind = DTYPES[dtype]
    ready = codec.read_model(as_bytes(model), kind, target.size)
    pieces = []
    cuts = [*range(0, target.size, chunk_nbytes), target.size]
    for start, end in pairwise(cuts):
        ours, theirs = as_bytes(target[start:end]), as_bytes(base[start:end])
        payload = codec.encode_chunk(ready, start, ours, theirs, kind)
        coded = len(payload) < ours.size
        raw_sum = xxhash.xxh64_intdigest(ours)
        base_sum = xxhash.xxh64_intdigest(theirs) if theirs.size else 0
        payload = payload if coded else ours.tobytes()
        pieces.append(Piece(CODED if coded else RAW, payload, raw_sum, base_sum))
    return Anatomy(
        codec.wire_id,
        kind.wire_id,
        target.size,
        tuple(pieces),
        model if any(piece.form == CODED for piece in pieces) else b"",
        chunk_nbytes,
        int(codec.needs_base),
    )
