"""What every codec owes for every dtype."""

import array
import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tstore_codecs as tc
from tensor_codecs import reference
from tensor_codecs.samples import ByteArray, awkward, weights
from tstore_codecs.dtypes import DTYPES
from tstore_codecs.registry import CODECS

MIB = 1 << 20
EVERY = list(itertools.product(tc.available(), DTYPES))


def base_of(codec: str, target: ByteArray, seed: int = 9) -> ByteArray | None:
    """Return a relative of `target` if `codec` needs one: some bits of some bytes differ."""
    if not CODECS[codec].needs_base:
        return None
    rng = np.random.default_rng(seed)
    changed = rng.random(target.size) < 0.2
    return target ^ (rng.integers(0, 8, target.size, np.uint8) * changed).astype(np.uint8)


def matrix_shape(dtype: str, nbytes: int) -> tuple[int, ...] | None:
    """Return a shape of `nbytes` bytes with many rows if it can be, else None."""
    n, rest = divmod(8 * nbytes, DTYPES[dtype].bits)
    lengths = (150, 50, 7, 1)
    return None if rest else next((n // k, k) for k in lengths if n % k == 0)


def check_round_trip(
    codec: str,
    dtype: str,
    target: ByteArray,
    base: ByteArray | None,
    shape: tuple[int, ...] | None = None,
) -> bytes:
    """Encode, decode, check every promise about the blob; return it."""
    before = target.tobytes(), base.tobytes() if base is not None else None
    blob = tc.encode(target, dtype=dtype, codec=codec, shape=shape, base=base)
    decoded = tc.decode(blob, base=base)
    assert decoded.dtype == np.uint8
    assert decoded.tobytes() == before[0]
    assert (target.tobytes(), base.tobytes() if base is not None else None) == before
    assert len(blob) <= tc.max_encoded_nbytes(target.size)
    info = tc.inspect(blob)
    assert (info.codec, info.dtype, info.raw_nbytes) == (codec, dtype, target.size)
    assert (info.encoded_nbytes, info.needs_base) == (len(blob), base is not None)
    return blob


@pytest.mark.parametrize(("codec", "dtype"), EVERY)
def test_awkward_inputs_survive(codec: str, dtype: str) -> None:
    for name, target in awkward(dtype).items():
        base = base_of(codec, target)
        blobs = [check_round_trip(codec, dtype, target, base)]
        shape = matrix_shape(dtype, target.size)
        if shape is not None and codec == "ulprow":
            blobs.append(check_round_trip(codec, dtype, target, base, shape))
        if dtype in ("OPAQUE", "BF16", "F32", "I64", "F8_E4M3") and target.size < 25_000:
            for blob in blobs:
                twin = reference.decode_blob(blob, None if base is None else base.tobytes())
                assert twin == target.tobytes(), name


@settings(max_examples=200, deadline=None)
@given(case=st.sampled_from(EVERY), data=st.data())
def test_any_bytes_survive(case: tuple[str, str], data: st.DataObject) -> None:
    codec, dtype = case
    few_values = st.lists(st.sampled_from((0, 0, 0, 1, 128, 255)), max_size=400).map(bytes)
    raw = data.draw(st.binary(max_size=400) | few_values)
    target = np.frombuffer(raw, np.uint8)
    base = None
    if CODECS[codec].needs_base:
        n = len(raw)
        base = np.frombuffer(data.draw(st.binary(min_size=n, max_size=n)), np.uint8)
    blob = check_round_trip(codec, dtype, target, base)
    assert reference.decode_blob(blob, None if base is None else base.tobytes()) == raw
    assert tc.encode(raw, dtype=dtype, codec=codec, base=base) == blob


@pytest.mark.parametrize("codec", [name for name in tc.available() if CODECS[name].needs_base])
def test_a_target_that_is_its_base_costs_next_to_nothing(codec: str) -> None:
    for nbytes in (*range(40), 4096, MIB + 1):
        target = weights("BF16", nbytes)
        blob = check_round_trip(codec, "BF16", target, target.copy())
        assert reference.decode_blob(blob, target.tobytes()) == target.tobytes()
        assert len(blob) <= 32 + 28 * -(-nbytes // MIB) + 60


@pytest.mark.parametrize("codec", tc.available())
@pytest.mark.parametrize("nbytes", [MIB - 1, MIB, MIB + 1, 2 * MIB + 4])
def test_chunk_borders(codec: str, nbytes: int) -> None:
    target = weights("F32", nbytes)
    blob = check_round_trip(codec, "F32", target, base_of(codec, target))
    assert tc.inspect(blob).n_chunks == -(-nbytes // MIB)


@pytest.mark.parametrize("codec", tc.available())
def test_random_bytes_never_expand_past_the_bound(codec: str) -> None:
    rng = np.random.default_rng(3)
    target, base = rng.integers(0, 256, (2, MIB + 77), np.uint8)
    blob = check_round_trip(codec, "BF16", target, base if CODECS[codec].needs_base else None)
    spared = 0 if CODECS[codec].needs_base else 8 * tc.inspect(blob).n_chunks
    assert len(blob) == tc.max_encoded_nbytes(target.size) - spared


def test_bound_is_met_exactly_by_the_smallest_targets() -> None:
    assert tc.max_encoded_nbytes(0) == len(tc.encode(b"", dtype="U8", codec="tensorx", base=b""))
    assert tc.max_encoded_nbytes(1) == len(tc.encode(b"x", dtype="U8", codec="tensorx", base=b"y"))


@pytest.mark.parametrize("codec", tc.available())
def test_buffers_of_every_kind(codec: str) -> None:
    raw = weights("F32", 4096)
    base = base_of(codec, raw)
    expected = tc.encode(raw, dtype="F32", codec=codec, base=base)
    shifted = np.empty(4097, np.uint8)[1:]
    shifted[:] = raw
    floats = raw.view(np.float32).reshape(32, 32)
    fortran = np.asfortranarray(floats)
    strided = np.stack((floats, floats), axis=-1)[..., 0]
    assert not fortran.flags.c_contiguous
    assert not strided.flags.c_contiguous
    frozen = raw.copy()
    frozen.flags.writeable = False
    wrapped = array.array("f", raw.tobytes())
    buffers: list[Any] = [
        raw.tobytes(),
        bytearray(raw),
        memoryview(raw),
        wrapped,
        memoryview(wrapped),
    ]
    for target in (*buffers, shifted, floats, fortran, strided, frozen):
        assert tc.encode(target, dtype="F32", codec=codec, base=base) == expected
    blob_at_odd_address = np.frombuffer(b"x" + expected, np.uint8)[1:]
    odd_base = None if base is None else np.concatenate((raw[:1], base))[1:]
    for blob in (bytearray(expected), memoryview(expected), blob_at_odd_address):
        assert np.array_equal(tc.decode(blob, base=odd_base), raw)


@pytest.mark.parametrize("codec", tc.available())
@pytest.mark.parametrize("offset", [0, 1])
def test_out_is_filled_in_place(codec: str, offset: int) -> None:
    target = weights("F32", MIB + 6)
    base = base_of(codec, target)
    blob = tc.encode(target, dtype="F32", codec=codec, base=base)
    room = bytearray(target.size + offset)
    decoded = tc.decode(blob, base=base, out=memoryview(room)[offset:])
    assert room[offset:] == target.tobytes()
    assert np.shares_memory(decoded, np.frombuffer(room, np.uint8))
    floats = np.zeros((target.size - 6) // 4, np.float32)
    short = tc.encode(
        target[:-6], dtype="F32", codec=codec, base=None if base is None else base[:-6]
    )
    tc.decode(short, base=None if base is None else base[:-6], out=floats)
    assert floats.tobytes() == target[:-6].tobytes()


def test_out_of_an_empty_blob() -> None:
    blob = tc.encode(b"", dtype="F32", codec="zipnn")
    assert tc.decode(blob, out=bytearray()).size == 0
    assert tc.decode(blob, out=np.empty((0, 3), np.float32)).size == 0


@pytest.mark.parametrize(
    "out", [bytes(8), bytearray(7), bytearray(9), np.empty(16, np.uint8)[::2]], ids=str
)
def test_unsuitable_out_is_refused(out: bytes | bytearray | ByteArray) -> None:
    blob = tc.encode(b"12345678", dtype="U8", codec="stored")
    with pytest.raises(tc.UnsuitableBufferError):
        tc.decode(blob, out=out)


def test_out_over_the_base_is_refused() -> None:
    base = weights("BF16", 1000)
    before = base.copy()
    blob = tc.encode(base[::-1].copy(), dtype="BF16", codec="tensorx", base=base)
    with pytest.raises(tc.UnsuitableBufferError, match="overlap"):
        tc.decode(blob, base=base, out=base)
    assert np.array_equal(base, before)


DELTA = [name for name in tc.available() if CODECS[name].needs_base]
ALONE = [name for name in tc.available() if not CODECS[name].needs_base]


@pytest.mark.parametrize("codec", DELTA)
def test_a_wrong_base_never_gives_bytes(codec: str) -> None:
    target = weights("BF16", 2000, step=1e-4)
    base = weights("BF16", 2000)
    blob = tc.encode(target, dtype="BF16", codec=codec, base=base)
    other = base.copy()
    other[1234] ^= 1
    out = np.full(2000, 9, np.uint8)
    for wrong in (other, base[:-1], np.append(base, base[:1]), b""):
        with pytest.raises(tc.WrongBaseError):
            tc.decode(blob, base=wrong, out=out)
    with pytest.raises(tc.MissingBaseError):
        tc.decode(blob, out=out)
    assert np.all(out == 9)


@pytest.mark.parametrize("codec", DELTA)
def test_encoding_wants_a_base_of_equal_length(codec: str) -> None:
    with pytest.raises(tc.MissingBaseError):
        tc.encode(b"1234", dtype="U8", codec=codec)
    with pytest.raises(tc.WrongBaseError):
        tc.encode(b"1234", dtype="U8", codec=codec, base=b"123")


@pytest.mark.parametrize("codec", ALONE)
def test_a_base_for_a_standalone_codec_is_an_error(codec: str) -> None:
    with pytest.raises(tc.UnexpectedBaseError):
        tc.encode(b"1234", dtype="U8", codec=codec, base=b"1234")
    blob = tc.encode(b"1234", dtype="U8", codec=codec)
    with pytest.raises(tc.UnexpectedBaseError):
        tc.decode(blob, base=b"1234")


def test_unknown_names_are_refused() -> None:
    with pytest.raises(tc.UnsupportedDtypeError, match="F5"):
        tc.encode(b"", dtype="F5", codec="stored")
    with pytest.raises(tc.UnknownCodecError, match="gzip"):
        tc.encode(b"", dtype="U8", codec="gzip")


@pytest.mark.parametrize("codec", tc.available())
def test_threads_do_not_change_the_bytes(codec: str) -> None:
    target = weights("BF16", 2 * MIB + 600)
    base = base_of(codec, target)
    shape = matrix_shape("BF16", target.size)
    alone = tc.encode(target, dtype="BF16", codec=codec, shape=shape, base=base)
    for threads in (2, 50):
        blob = tc.encode(target, dtype="BF16", codec=codec, shape=shape, base=base, threads=threads)
        assert blob == alone
        assert np.array_equal(tc.decode(blob, base=base, threads=threads), target)
        part = tc.decode_range(blob, 5, 2 * MIB + 7, base=base, threads=threads)
        assert np.array_equal(part, target[5 : 2 * MIB + 7])


@pytest.mark.parametrize("codec", tc.available())
@pytest.mark.parametrize(
    ("dtype", "nbytes", "shape"),
    [
        ("BF16", 24000, (12000,)),
        ("BF16", 24000, (12000, 1)),
        ("BF16", 24000, (1, 12000)),
        ("BF16", 24000, (5, 8, 300)),
        ("F4", 1500, (1000, 3)),
        ("F6_E3M2", 1500, (2, 1000)),
        ("C64", 48000, (30, 200)),
        ("F32", 4, ()),
        ("F32", 4, (1, 1)),
        ("F32", 0, (0,)),
        ("F32", 0, (0, 5)),
        ("F32", 0, (5, 0)),
    ],
)
def test_any_shape_will_do(codec: str, dtype: str, nbytes: int, shape: tuple[int, ...]) -> None:
    target = weights(dtype, nbytes)
    base = base_of(codec, target)
    blob = check_round_trip(codec, dtype, target, base, shape)
    if codec != "ulprow":
        assert tc.encode(target, dtype=dtype, codec=codec, base=base) == blob
    assert reference.decode_blob(blob, None if base is None else base.tobytes()) == target.tobytes()


@pytest.mark.parametrize("shape", [(), (3,), (5,), (2, 3), (-1, -4), (4, 0)])
def test_a_shape_of_another_size_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(tc.WrongShapeError, match="expected a shape of 16 bytes"):
        tc.encode(bytes(16), dtype="F32", codec="zipnn", shape=shape)
