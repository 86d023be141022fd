"""Blobs that lie: each check has its error, and no damage ever yields other bytes."""

import struct

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

import tstore_codecs as tc
from tensor_codecs.samples import ByteArray, weights
from tstore_codecs import zframes
from tstore_codecs.frame import checksum
from tstore_codecs.limits import MAX_CHUNK_NBYTES, MAX_EXPANSION
from tstore_codecs.registry import CODECS


def reseal(blob: bytes | bytearray) -> bytes:
    """Return `blob` with a fresh checksum at its end, as an attacker would."""
    content = bytes(blob[:-8])
    return content + checksum(np.frombuffer(content, np.uint8)).to_bytes(8, "little")


def patched(blob: bytes, at: int, form: str, *values: int) -> bytes:
    """Return `blob` with `values` packed over the bytes at `at`, resealed."""
    changed = bytearray(blob)
    struct.pack_into("<" + form, changed, at, *values)
    return reseal(changed)


def sample(codec: str) -> tuple[ByteArray, ByteArray | None, bytes]:
    """Return a small target, its base if any, and a blob with planes of all modes it can have."""
    target = weights("F32", 1201)
    target[400:800] = 0
    base = None
    if CODECS[codec].needs_base:
        base = target.copy()
        base[::3] ^= np.arange(401, dtype=np.uint8) % 5
    return target, base, tc.encode(target, dtype="F32", codec=codec, base=base)


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
        damaged = bytearray(blob)
        damaged[bit // 8] ^= 1 << bit % 8
        assert outcome(bytes(damaged), base, target) != "target"


@pytest.mark.parametrize("codec", tc.available())
def test_every_flipped_bit_under_a_fresh_checksum_ends_well(codec: str) -> None:
    target, base, blob = sample(codec)
    outcomes = set()
    for bit in range(8 * (len(blob) - 8)):
        damaged = bytearray(blob)
        damaged[bit // 8] ^= 1 << bit % 8
        outcomes.add(outcome(reseal(damaged), base, target))
    assert {"CorruptBlobError", "UnsupportedVersionError", "TruncatedBlobError"} <= outcomes


@pytest.mark.parametrize("codec", tc.available())
def test_every_truncation_is_noticed(codec: str) -> None:
    target, base, blob = sample(codec)
    for length in range(len(blob)):
        with pytest.raises(tc.TruncatedBlobError):
            tc.decode(blob[:length], base=base)
        if length >= 8:
            assert outcome(reseal(blob[:length]), base, target) != "target"


@pytest.mark.parametrize("codec", tc.available())
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_overwritten_spans_end_well(codec: str, data: st.DataObject) -> None:
    target, base, blob = sample(codec)
    at = data.draw(st.integers(0, len(blob) - 9))
    span = data.draw(st.binary(min_size=1, max_size=40))
    damaged = bytearray(blob)
    damaged[at : at + len(span)] = span[: len(blob) - 8 - at]
    outcome(reseal(damaged), base, target)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_no_blob(data: bytes) -> None:
    with pytest.raises((tc.CorruptBlobError, tc.TruncatedBlobError)):
        tc.inspect(data)


BLOB = tc.encode(bytes(range(200)) * 2, dtype="U8", codec="stored")


@pytest.mark.parametrize(
    ("at", "form", "values", "error", "message"),
    [
        (0, "B", (0,), tc.CorruptBlobError, "begin with"),
        (4, "B", (0,), tc.UnsupportedVersionError, "version 0"),
        (4, "B", (2,), tc.UnsupportedVersionError, "version 2"),
        (5, "B", (3,), tc.UnknownCodecError, "bitx"),
        (5, "B", (255,), tc.UnknownCodecError, "never assigned"),
        (5, "B", (4,), tc.CorruptBlobError, "flags"),
        (6, "B", (23,), tc.UnsupportedDtypeError, "23"),
        (7, "B", (2,), tc.CorruptBlobError, "flags"),
        (16, "I", (0,), tc.CorruptBlobError, "chunk size"),
        (16, "I", (404,), tc.CorruptBlobError, "chunk size"),
        (16, "I", (MAX_CHUNK_NBYTES + 8,), tc.CorruptBlobError, "chunk size"),
        (16, "I", (200,), tc.CorruptBlobError, "expected 2 chunks"),
        (8, "Q", (MAX_CHUNK_NBYTES + 1,), tc.CorruptBlobError, "expected 2 chunks"),
        (8, "Q", (2**64 - 1,), tc.CorruptBlobError, "chunks for"),
        (8, "Q", (399,), tc.CorruptBlobError, "longer than its raw"),
        (8, "Q", (401,), tc.CorruptBlobError, "stored chunk"),
        (20, "I", (2,), tc.TruncatedBlobError, "at least"),
        (20, "I", (2**32 - 1,), tc.TruncatedBlobError, "at least"),
        (24, "Q", (0,), tc.CorruptBlobError, "decoded bytes"),
        (32, "I", (401,), tc.TruncatedBlobError, "at least"),
        (32, "I", (399,), tc.CorruptBlobError, "of 443 bytes"),
    ],
)
def test_each_header_check(
    at: int, form: str, values: tuple[int], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        tc.decode(patched(BLOB, at, form, *values))


def test_an_empty_chunk_is_refused() -> None:
    content = BLOB[:20] + struct.pack("<IQII", 2, 0, 0, 400) + BLOB[36:]
    two = struct.pack("<QI", 2 * MAX_CHUNK_NBYTES, MAX_CHUNK_NBYTES)
    with pytest.raises(tc.CorruptBlobError, match="empty"):
        tc.decode(reseal(content[:8] + two + content[20:]))


def test_a_stale_checksum_is_refused() -> None:
    damaged = bytearray(BLOB)
    damaged[100] ^= 1
    with pytest.raises(tc.CorruptBlobError, match="with checksum"):
        tc.inspect(damaged)


def test_trailing_bytes_are_refused() -> None:
    with pytest.raises(tc.CorruptBlobError, match="444 bytes; found 445"):
        tc.inspect(BLOB + b"\0")


def chunk_blob(codec: str, dtype: str, payload: bytes, raw_nbytes: int) -> bytes:
    """Return a sealed blob of one chunk whose target checksum is 0."""
    ids = CODECS[codec].wire_id, {"U8": 5, "U16": 13}[dtype]
    head = struct.pack("<4s4BQIIQ", b"\xa7TSB", 1, *ids, 0, raw_nbytes, MAX_CHUNK_NBYTES, 1, 0)
    return reseal(head + struct.pack("<I", len(payload)) + payload + bytes(8))


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (b"\x04abc", "plane mode"),
        (b"\x00abc", "expected 100 bytes at offset 1"),
        (b"\x01", "expected 1 bytes at offset 1"),
        (b"\x01aa", "1 bytes more"),
        (b"\x02\x05\x00\x00", "expected 4 bytes"),
        (b"\x02\xff\xff\xff\xff", "expected 4294967295 bytes"),
        (b"\x02\x00\x00\x00\x00", "ends early"),
        (b"\x03\x04\x00\x00\x00abcd", "zstd frame"),
    ],
)
def test_each_plane_check(payload: bytes, message: str) -> None:
    with pytest.raises(tc.CorruptBlobError, match=message):
        tc.decode(chunk_blob("zipnn", "U8", payload, 100))


def zstd_frame_stating(nbytes: int, window_log: int) -> bytes:
    """Return a zstd frame of 10,000 bytes whose header is changed to state other sizes."""
    frame = zstandard.ZstdCompressor().compress(bytes(range(200)) * 50)
    assert frame[4:7] == b"\x60" + struct.pack("<H", 10_000 - 256)
    return frame[:4] + struct.pack("<BBI", 0x80, window_log - 10 << 3, nbytes) + frame[7:]


@pytest.mark.parametrize(
    ("nbytes", "window_log", "message"),
    [
        (9_999, 17, "states 9999"),
        (10_001, 17, "states 10001"),
        (1 << 30, 17, "states 1073741824"),
        (10_000, 21, "and 2097152"),
        (10_000, 31, "and 2147483648"),
    ],
)
def test_a_zstd_frame_of_other_sizes_is_refused_before_it_is_unpacked(
    nbytes: int, window_log: int, message: str
) -> None:
    blob = chunk_blob("zstd", "U8", zstd_frame_stating(nbytes, window_log), 10_000)
    with pytest.raises(tc.CorruptBlobError, match=message):
        tc.decode(blob)
    sound = chunk_blob("zstd", "U8", zstd_frame_stating(10_000, 20), 10_000)
    with pytest.raises(tc.CorruptBlobError, match="decoded bytes"):  # its target checksum is 0
        tc.decode(sound)


def test_a_zstd_frame_that_skips_is_refused() -> None:
    skippable = np.frombuffer(struct.pack("<II", 0x184D2A50, 100) + bytes(100), np.uint8)
    with pytest.raises(tc.CorruptBlobError, match="valid zstd frame"):
        zframes.decompress(skippable, 100)


def test_bytes_after_a_zstd_frame_are_refused() -> None:
    frame = zstandard.ZstdCompressor().compress(bytes(100))
    with pytest.raises(tc.CorruptBlobError, match="zstd frame"):
        tc.decode(chunk_blob("zstd", "U8", frame + b"\0", 100))


def test_expansion_is_bounded() -> None:
    target = bytes(32 << 20)
    for codec in ("zipnn", "zstd"):
        blob = tc.encode(target, dtype="BF16", codec=codec)
        assert len(blob) < 4000
        assert len(target) <= len(blob) * MAX_EXPANSION
        assert not tc.decode(blob).any()
    # The cheapest chunk a header check lets through costs five bytes.
    n = 5000
    head = struct.pack("<4s4BQIIQ", b"\xa7TSB", 1, 2, 5, 0, n << 20, 1 << 20, n, 0)
    lies = reseal(head + struct.pack("<I", 1) * n + bytes(n) + bytes(8))
    assert tc.inspect(lies).raw_nbytes <= len(lies) * MAX_EXPANSION
