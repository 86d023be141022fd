"""Damaged blobs: what a disk or a network does to them, and the same under fresh checksums."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

import tstore_codecs as tc
from tensor_codecs.anatomy import HEADER, MAGIC, Anatomy, Piece, take_apart
from tensor_codecs.samples import ByteArray
from tensor_codecs.specimens import FEW, relatives
from tstore_codecs.limits import MAX_EXPANSION
from tstore_codecs.registry import CODECS

MIB = 1 << 20


@cache
def sample(codec: str) -> tuple[ByteArray, ByteArray | None, bytes]:
    """Return a small target, its base if `codec` needs one, and its blob."""
    base, target = relatives("BF16", FEW)
    theirs = base if CODECS[codec].needs_base else None
    return target, theirs, tc.encode(target, dtype="BF16", codec=codec, base=theirs)


def resealed(blob: bytes, head_nbytes: int) -> bytes:
    """Return `blob` with the checksum of a head of `head_nbytes` made sound."""
    digest = xxhash.xxh64_intdigest(blob[:head_nbytes])
    return blob[:head_nbytes] + digest.to_bytes(8, "little") + blob[head_nbytes + 8 :]


def flipped(blob: bytes, bit: int) -> bytes:
    """Return `blob` with one other bit."""
    damaged = bytearray(blob)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


def outcome(blob: bytes, base: ByteArray | None, target: ByteArray) -> str:
    """Decode damaged `blob`; return the name of the error, or fail if other bytes came out."""
    try:
        decoded = tc.decode(blob, base=base)
    except tc.CodecError as error:
        return type(error).__name__
    assert decoded.tobytes() == target.tobytes()
    return "target"


@pytest.mark.parametrize("codec", tc.available())
def test_every_flipped_bit_is_noticed(codec: str) -> None:
    target, base, blob = sample(codec)
    for bit in range(8 * len(blob)):
        assert outcome(flipped(blob, bit), base, target) != "target"


@pytest.mark.parametrize("codec", tc.available())
def test_every_truncation_is_noticed(codec: str) -> None:
    _, base, blob = sample(codec)
    for length in range(len(blob)):
        with pytest.raises(tc.TruncatedBlobError):
            tc.decode(blob[:length], base=base)


@pytest.mark.parametrize("codec", tc.available())
def test_every_flipped_bit_of_a_head_under_a_fresh_checksum_ends_well(codec: str) -> None:
    target, base, blob = sample(codec)
    size = len(take_apart(blob).model) + HEADER.size + (28 if base is not None else 20)
    outcomes = {
        outcome(resealed(flipped(blob, bit), size), base, target) for bit in range(8 * size)
    }
    assert {"CorruptBlobError", "UnsupportedVersionError", "TruncatedBlobError"} <= outcomes


@pytest.mark.parametrize("codec", tc.available())
def test_every_shorter_payload_under_fresh_checksums_ends_well(codec: str) -> None:
    target, base, blob = sample(codec)
    parts = take_apart(blob)
    payload = parts.pieces[0].payload
    for length in range(len(payload)):
        damaged = parts.with_payload(0, payload[:length]).seal()
        assert outcome(damaged, base, target) == "CorruptBlobError"


@pytest.mark.parametrize("codec", tc.available())
@settings(max_examples=60)
@given(data=st.data())
def test_overwritten_spans_end_well(codec: str, data: st.DataObject) -> None:
    target, base, blob = sample(codec)
    parts = take_apart(blob)
    part = data.draw(st.sampled_from([parts.pieces[0].payload, parts.model or b"\0"]))
    at = data.draw(st.integers(0, len(part) - 1))
    changed = (
        part[:at] + data.draw(st.binary(max_size=40)) + part[at + data.draw(st.integers(0, 40)) :]
    )
    if part is parts.model:
        damaged = replace(parts, model=changed)
    else:
        damaged = parts.with_payload(0, changed)
    outcome(damaged.seal(), base, target)


@settings(max_examples=300)
@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_are_no_blob(data: bytes, begins_well: bool) -> None:
    with pytest.raises(tc.CodecError):
        tc.inspect(MAGIC + b"\1" + data if begins_well else data)


def test_a_wrong_base_is_noticed_where_it_is_read() -> None:
    base, target = relatives("BF16", MIB // 2 + 1000)
    blob = tc.encode(target, dtype="BF16", codec="ulprow", base=base)
    other = base.copy()
    other[MIB + 7] ^= 1
    assert tc.decode_range(blob, 5, MIB, base=other).tobytes() == target[5:MIB].tobytes()
    for start, stop in ((MIB, MIB + 1), (0, target.size)):
        with pytest.raises(tc.WrongBaseError, match="chunk 1"):
            tc.decode_range(blob, start, stop, base=other)
    with pytest.raises(tc.WrongBaseError, match="chunk 1"):
        tc.decode(blob, base=other, threads=2)


@pytest.mark.parametrize("codec", ["zipnn", "zstd"])
def test_expansion_is_bounded(codec: str) -> None:
    target = bytes(8 * MIB)
    blob = tc.encode(target, dtype="BF16", codec=codec)
    assert len(target) <= len(blob) * MAX_EXPANSION
    assert not tc.decode(blob).any()


def test_the_cheapest_head_stays_within_the_expansion() -> None:
    pieces = (Piece(0, b"\0"),) * 500
    lies = Anatomy(2, 5, 500 * MIB, pieces).seal()
    assert tc.inspect(lies).raw_nbytes <= len(lies) * MAX_EXPANSION
    assert np.ceil(MAX_EXPANSION) == MIB // (len(pieces[0].entry(False)) + 1)
