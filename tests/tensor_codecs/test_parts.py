"""Dtypes, registry, errors and buffers."""

import pickle
from pathlib import Path

import numcodecs
import numpy as np
import pytest

import tstore_codecs as tc
from tensor_codecs import reference
from tensor_codecs.samples import weights
from tstore_codecs import model
from tstore_codecs.buffers import as_bytes
from tstore_codecs.dtypes import DTYPES, dtype_by_name, dtype_by_wire_id
from tstore_codecs.registry import ASSIGNED, CODECS, codec_by_name, codec_by_wire_id, index_codecs
from tstore_codecs.stored import Stored
from tstore_codecs.zarr import ZstdCodec
from tstore_codecs.zstd import Zstd

WIRE_IDS = {
    "OPAQUE": 0,
    "BOOL": 1,
    "F4": 2,
    "F6_E2M3": 3,
    "F6_E3M2": 4,
    "U8": 5,
    "I8": 6,
    "F8_E5M2": 7,
    "F8_E4M3": 8,
    "F8_E8M0": 9,
    "F8_E4M3FNUZ": 10,
    "F8_E5M2FNUZ": 11,
    "I16": 12,
    "U16": 13,
    "F16": 14,
    "BF16": 15,
    "I32": 16,
    "U32": 17,
    "F32": 18,
    "C64": 19,
    "F64": 20,
    "I64": 21,
    "U64": 22,
}


def test_wire_ids_never_change() -> None:
    assert {name: dtype.wire_id for name, dtype in DTYPES.items()} == WIRE_IDS
    assert dict(ASSIGNED) == dict(
        enumerate(("stored", "zstd", "zipnn", "bitx", "tensorx", "fmpp", "ulpack", "ulprow"))
    )


def test_lookups_agree() -> None:
    for dtype in DTYPES.values():
        assert dtype_by_name(dtype.name) is dtype_by_wire_id(dtype.wire_id)
    for name, codec in CODECS.items():
        assert codec_by_name(name) is codec_by_wire_id(codec.wire_id)
    assert tc.available() == tuple(CODECS)


@pytest.mark.parametrize("name", DTYPES)
def test_widths_follow_from_bits(name: str) -> None:
    dtype = DTYPES[name]
    expected = 4 if name == "C64" else max(dtype.bits // 8, 1)
    assert dtype.width == expected
    assert dtype.signed_float == (
        name in ("F16", "BF16", "F32", "F64", "C64") or (name[:2] == "F8" and name != "F8_E8M0")
    )


class Impostor(Stored):
    wire_id = 1  # type: ignore[misc]


class Unassigned(Stored):
    wire_id = 200  # type: ignore[misc]


def test_mantissas_are_those_of_the_format() -> None:
    assert {dtype.wire_id: dtype.width for dtype in DTYPES.values()} == reference.WIDTHS
    assert {
        dtype.wire_id: dtype.mantissa_bits for dtype in DTYPES.values() if dtype.signed_float
    } == reference.MANTISSAS


def test_two_claims_to_one_id_or_name_raise() -> None:
    with pytest.raises(tc.DuplicateCodecError, match="two"):
        index_codecs((Stored(), Zstd(), Stored()))
    with pytest.raises(tc.DuplicateCodecError, match="belongs to 'zstd'"):
        index_codecs((Impostor(),))
    with pytest.raises(tc.DuplicateCodecError, match="belongs to None"):
        index_codecs((Unassigned(),))


@pytest.mark.parametrize("error", [tc.CodecError, *tc.CodecError.__subclasses__()])
def test_errors_pickle_with_their_context(error: type[tc.CodecError]) -> None:
    back = pickle.loads(pickle.dumps(error("expected 1; found 2", expected=1, found=2)))
    assert type(back) is error
    assert str(back) == "expected 1; found 2"
    assert vars(back) == {"expected": 1, "found": 2}


def test_public_names_are_all_there() -> None:
    errors = {error.__name__ for error in tc.CodecError.__subclasses__()}
    functions = {"encode", "decode", "decode_range", "inspect", "available", "max_encoded_nbytes"}
    assert set(tc.__all__) == errors | functions | {"CodecError", "BlobInfo", "FORMAT_VERSION"}
    assert all(hasattr(tc, name) for name in tc.__all__)


def test_bytes_of_a_buffer_are_a_view_that_cannot_be_written() -> None:
    source = np.arange(6, dtype=np.uint16)
    flat = as_bytes(source)
    assert np.shares_memory(flat, source)
    assert not flat.flags.writeable
    assert as_bytes(source.reshape(2, 3).T).tobytes() == source.reshape(2, 3).T.tobytes()
    with pytest.raises(TypeError):
        as_bytes("text")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "cut", [np.s_[:], np.s_[3:], np.s_[:0], np.s_[::2]], ids=["all", "odd", "none", "strided"]
)
def test_flat_bytes_are_a_plain_array_and_leave_the_source_writable(
    cut: slice, tmp_path: Path
) -> None:
    (tmp_path / "mapped").write_bytes(bytes(range(64)))
    mapped = np.memmap(tmp_path / "mapped", np.uint8, "r+")
    for source in (np.arange(64, dtype=np.uint8), mapped):
        flat = as_bytes(source[cut])
        assert type(flat) is np.ndarray
        assert flat.tobytes() == bytes(range(64))[cut]
        assert flat.flags.c_contiguous
        assert not flat.flags.writeable
        assert source.flags.writeable


def test_arrays_without_a_buffer_format_go_by_their_bytes() -> None:
    dates = np.arange(6).astype("M8[s]").reshape(2, 3)
    assert as_bytes(dates).tobytes() == dates.tobytes()
    assert as_bytes(dates.T).tobytes() == dates.T.tobytes()
    assert as_bytes(np.array(7, np.uint16)).tobytes() == b"\7\0"
    with pytest.raises(tc.UnsuitableBufferError, match="object"):
        tc.encode(np.array([1, "a"], object), dtype="OPAQUE", codec="stored")


@pytest.mark.parametrize(
    ("length", "fitting"),
    [(1, 128), (100, 200), (384, 384), (2048, 2048), (4096, 2048), (11008, 1376), (2053, 1027)],
)
def test_rows_are_cut_where_they_end(length: int, fitting: int) -> None:
    assert model._fitting_row(length) == fitting


def test_shapes_of_any_integers_are_fine() -> None:
    target = np.zeros(64, np.uint8)
    shape = (np.int32(8), np.int64(4))
    plain = tc.encode(target, dtype="BF16", codec="ulprow", shape=(8, 4), base=target)
    assert tc.encode(target, dtype="BF16", codec="ulprow", shape=shape, base=target) == plain
    huge = (np.int32(70_000), np.int32(70_000))
    with pytest.raises(tc.WrongShapeError):
        tc.encode(target, dtype="BF16", codec="ulprow", shape=huge, base=target)
    with pytest.raises(tc.WrongShapeError):
        tc.encode(target, dtype="BF16", codec="ulprow", shape=(-8, -4), base=target)


def test_numcodecs_finds_the_codecs_without_a_base() -> None:
    codec = numcodecs.get_codec({"id": "tstore_zipnn", "dtype": "BF16"})
    data = weights("BF16", 10_000).view(np.uint16)
    coded = codec.encode(data)
    assert tc.inspect(coded).codec == "zipnn"
    assert bytes(codec.decode(coded)) == data.tobytes()
    out = np.empty_like(data)
    codec.decode(coded, out=out)
    assert np.array_equal(out, data)
    assert codec.get_config() == {"id": "tstore_zipnn", "dtype": "BF16"}
    assert (
        bytes(numcodecs.get_codec({"id": "tstore_zstd"}).decode(ZstdCodec().encode(b"ab"))) == b"ab"
    )
