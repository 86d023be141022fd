"""The safetensors header parser: what it accepts, and one error per broken rule."""

import json

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from safetensors import SafetensorError, deserialize
from safetensors.numpy import save

from tstore.errors import (
    DuplicateKeyError,
    HeaderNotJsonError,
    HeaderNotUtf8Error,
    HeaderTooLargeError,
    HeaderTruncatedError,
    HoleError,
    InvalidEntryError,
    LayoutError,
    OffsetRangeError,
    OverlapError,
    SizeMismatchError,
    UnknownDtypeError,
)
from tstore.hub.reader import open_source, stat_source
from tstore.hub.safetensors_header import (
    MAX_HEADER_NBYTES,
    TensorEntry,
    parse_header,
    read_entries,
)
from tstore_codecs.dtypes import DTYPES


def tensor(dtype, shape, start, stop):
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}


def parse(table, data_nbytes):
    """Parse a header, given as text or as what json.dumps takes, before so many bytes."""
    text = table if isinstance(table, str) else json.dumps(table)
    header = text.encode()
    return parse_header(header, 8 + len(header) + data_nbytes)


def reference_accepts(content):
    try:
        deserialize(content)
    except SafetensorError:
        return False
    return True


def read(tmp_path, content):
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with open_source(stat_source(path)) as reader:
        return read_entries(reader)


# --- accepted ---------------------------------------------------------------------------------


def test_entries_are_sorted_by_offset_and_absolute():
    table = {
        "z": tensor("U8", [3], 4, 7),
        "a": tensor("BF16", [2, 1], 0, 4),
        "__metadata__": {"format": "pt"},
    }
    start = 8 + len(json.dumps(table))
    assert parse(table, 7) == [
        TensorEntry("a", "BF16", (2, 1), start, start + 4),
        TensorEntry("z", "U8", (3,), start + 4, start + 7),
    ]


def test_zero_size_and_scalar_tensors_are_kept():
    table = {
        "empty": tensor("F32", [0], 0, 0),
        "flat": tensor("F32", [2, 0], 4, 4),
        "huge": tensor("F32", [2**62, 0, 2**62], 4, 4),
        "scalar": tensor("F32", [], 0, 4),
    }
    entries = parse(table, 4)
    assert [(e.name, e.shape, e.stop - e.start) for e in entries] == [
        ("empty", (0,), 0),
        ("scalar", (), 4),
        ("flat", (2, 0), 0),
        ("huge", (2**62, 0, 2**62), 0),
    ]


@pytest.mark.parametrize("text", ["{}", '{"__metadata__":{}}', '{"__metadata__":{"a":"b"}}   '])
def test_a_file_without_tensors_is_valid(text):
    assert parse(text, 0) == []


def test_padding_and_unaligned_data_are_valid():
    text = json.dumps({"a": tensor("U8", [1], 0, 1), "b": tensor("F64", [1], 1, 9)}) + " " * 5
    assert [e.start - 8 - len(text) for e in parse(text, 9)] == [0, 1]


@pytest.mark.parametrize("dtype", sorted(set(DTYPES) - {"OPAQUE"}))
def test_every_dtype_has_its_width(dtype):
    nbytes = DTYPES[dtype].bits
    text = json.dumps({"x": tensor(dtype, [2, 4], 0, nbytes)})
    assert len(parse(text, nbytes)) == 1
    content = len(text).to_bytes(8, "little") + text.encode() + bytes(nbytes)
    assert reference_accepts(content)


def test_any_unicode_name_is_kept():
    names = ["", "层.0", "a/../b", "\0", "🙂", '"quoted"']
    entries = parse({name: tensor("U8", [0], 0, 0) for name in names}, 0)
    assert [e.name for e in entries] == names


DTYPES_OF_NUMPY = ["bool", "u1", "i1", "u2", "i2", "f2", "u4", "i4", "f4", "u8", "i8", "f8", "c8"]


@given(
    tensors=st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=8).filter(
            lambda name: name != "__metadata__"
        ),
        st.tuples(st.sampled_from(DTYPES_OF_NUMPY), st.lists(st.integers(0, 3), max_size=4)),
        max_size=6,
    ),
    metadata=st.none() | st.dictionaries(st.text('ab\n"é', max_size=4), st.text(max_size=4)),
    seed=st.integers(0, 2**32 - 1),
)
def test_what_the_reference_writer_wrote_is_found(tensors, metadata, seed):
    assume(tensors or metadata != {})  # for these two the reference writes no valid JSON
    rng = np.random.default_rng(seed)
    arrays = {
        name: np.asarray(rng.integers(0, 2, shape), dtype)
        for name, (dtype, shape) in tensors.items()
    }
    content = save(arrays, metadata)
    stop = 8 + int.from_bytes(content[:8], "little")
    entries = parse_header(content[8:stop], len(content))
    assert {e.name for e in entries} == set(arrays)
    for entry in entries:
        array = arrays[entry.name]
        assert entry.shape == array.shape
        assert DTYPES[entry.dtype].bits == 8 * array.itemsize
        assert content[entry.start : entry.stop] == array.tobytes()
    assert stop + sum(e.stop - e.start for e in entries) == len(content)


# --- refused: the file around the header ------------------------------------------------------


@pytest.mark.parametrize("nbytes", range(8))
def test_a_file_shorter_than_the_length_field(tmp_path, nbytes):
    with pytest.raises(HeaderTruncatedError, match=f"at least 8 bytes.*a file of {nbytes}"):
        read(tmp_path, b"\2\0\0\0\0\0\0\0"[:nbytes])


def test_a_header_beyond_the_file(tmp_path):
    with pytest.raises(HeaderTruncatedError, match=r"header of 3 bytes, found 2 .*incomplete"):
        read(tmp_path, b"\3\0\0\0\0\0\0\0{}")
    with pytest.raises(HeaderTruncatedError, match=r"at least 10 bytes, found a file of 9"):
        parse_header(b"{}", 9)


def test_a_header_above_the_limit_is_not_read(tmp_path):
    assert MAX_HEADER_NBYTES == 100_000_000
    content = (100_000_001).to_bytes(8, "little") + b"{}"
    with pytest.raises(
        HeaderTooLargeError, match="at most 100000000 bytes, found length 100000001"
    ):
        read(tmp_path, content)
    with pytest.raises(HeaderTruncatedError):
        read(tmp_path, (100_000_000).to_bytes(8, "little") + b"{}")


@pytest.mark.parametrize("text", ["<!DOCTYPE html>", "version https://git-lfs.github.com/spec/v1"])
def test_a_web_page_or_pointer_gets_a_hint(tmp_path, text):
    with pytest.raises(HeaderTooLargeError, match="is it a web page or a Git LFS pointer"):
        read(tmp_path, text.encode())


def test_a_valid_file_is_read(tmp_path):
    content = save({"x": np.arange(3, dtype=np.int16)})
    (entry,) = read(tmp_path, content)
    assert (entry.name, entry.dtype, entry.shape) == ("x", "I16", (3,))
    assert content[entry.start : entry.stop] == np.arange(3, dtype=np.int16).tobytes()


# --- refused: text and JSON -------------------------------------------------------------------


def test_bytes_that_are_not_utf8():
    header = b'{"\xff": 0}'
    with pytest.raises(HeaderNotUtf8Error, match="UTF-8, found invalid start byte at byte 2"):
        parse_header(header, 8 + len(header))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "begins with '{', found ''"),
        ("[]", "found '\\[\\]'"),
        ('"a"', "begins with"),
        (" {}", "begins with '{', found ' {}'"),
        ("\ufeff{}", "begins with"),
        ("{", "one JSON object, found: "),
        ("{}{}", "Extra data"),
        ("{}\0", "Extra data"),
        ("{'a': 1}", "one JSON object"),
        ('{"a": NaN}', "no NaN"),
        ('{"a": -Infinity}', "no -Infinity"),
        ('{"a": ' + "[" * 200_000, "recursion"),
        ('{"a": ' + '{"a":' * 200_000, "recursion"),
    ],
)
def test_text_that_is_not_one_json_object(text, found):
    with pytest.raises(HeaderNotJsonError, match=found):
        parse(text, 0)


@pytest.mark.parametrize(
    "text",
    [
        '{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":0}',
        '{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"a":0,"a":0}}',
        '{"__metadata__":{"a":"x","a":"x"}}',
        '{"b":[{"a":0,"\\u0061":0}]}',
    ],
)
def test_a_key_named_twice(text):
    with pytest.raises(DuplicateKeyError, match="expected each key once, found 'a' twice"):
        parse(text, 0)


def test_two_metadata_objects_are_a_duplicate():
    with pytest.raises(DuplicateKeyError, match="__metadata__"):
        parse('{"__metadata__":{},"__metadata__":{}}', 0)


# --- refused: entries -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metadata", "found"),
    [
        (None, "to be an object, found None"),
        ([], "to be an object"),
        ("x", "found 'x'"),
        ({"a": 1}, "text at __metadata__\\['a'\\], found 1"),
        ({"a": None}, "found None"),
        ({"a": {}}, "found {}"),
    ],
)
def test_metadata_must_map_text_to_text(metadata, found):
    with pytest.raises(InvalidEntryError, match=found):
        parse({"__metadata__": metadata}, 0)


@pytest.mark.parametrize(
    "fields",
    [
        None,
        [],
        "U8",
        {},
        {"dtype": "U8", "shape": [0]},
        {**tensor("U8", [0], 0, 0), "extra": 1},
        {"dtype": "U8", "shape": [0], "offsets": [0, 0]},
    ],
)
def test_an_entry_has_exactly_three_fields(fields):
    with pytest.raises(InvalidEntryError, match=r"'w' with exactly \['data_offsets', 'dtype'"):
        parse({"w": fields}, 0)


@pytest.mark.parametrize("dtype", [None, 1, ["U8"], {}])
def test_dtype_must_be_text(dtype):
    with pytest.raises(InvalidEntryError, match="dtype of 'w' to be text"):
        parse({"w": tensor(dtype, [0], 0, 0)}, 0)


@pytest.mark.parametrize(
    "shape", [None, 1, "3", {}, [-1], [1.0], [True], ["1"], [None], [[1]], [2**63]]
)
def test_shape_must_hold_sizes(shape):
    with pytest.raises(InvalidEntryError, match=r"shape of 'w' to be integers in .*, found"):
        parse({"w": tensor("U8", shape, 0, 1)}, 1)


@pytest.mark.parametrize(
    "offsets",
    [None, 1, "01", {}, [], [0], [0, 1, 1], [-1, 0], [0, 1.0], [False, True], [0, 2**63]],
)
def test_offsets_must_be_two_sizes(offsets):
    fields = {"dtype": "U8", "shape": [1], "data_offsets": offsets}
    with pytest.raises(InvalidEntryError, match="data_offsets of 'w' to be two integers"):
        parse({"w": fields}, 1)


def test_a_number_of_many_digits_is_refused_unparsed():
    with pytest.raises(InvalidEntryError, match="at most 20 digits, found 1000000"):
        parse('{"w":{"dtype":"U8","shape":[' + "9" * 1_000_000 + "]}}", 0)


def test_a_name_that_no_utf8_can_hold():
    with pytest.raises(InvalidEntryError, match=r"without lone surrogates, found '\\ud800'"):
        parse('{"\\ud800":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}', 0)


@pytest.mark.parametrize("dtype", ["", "f32", "F31", "OPAQUE", "\ud800"])
def test_an_unknown_dtype(dtype):
    with pytest.raises(UnknownDtypeError, match=r"dtype of 'w' among \['BF16', .*, found"):
        parse({"w": tensor(dtype, [0], 0, 0)}, 0)


@pytest.mark.parametrize(
    ("dtype", "shape", "found"),
    [
        ("F32", [2], "expected 8 bytes for 'w' \\(F32 \\[2\\]\\), found 4"),
        ("U8", [], "expected 1 bytes"),
        ("U8", [0], "expected 0 bytes"),
        ("F4", [7], "whole bytes, found 28 bits"),
        ("F6_E2M3", [3], "whole bytes, found 18 bits"),
        ("U8", [2**32, 2**32], "at most 9223372036854775807 bytes"),
        ("F64", [2**62], "at most"),
        ("U8", [2**62, 2**62, 0], "expected 0 bytes"),
        ("U8", [2**62] * 100_000, "at most"),
    ],
)
def test_a_shape_that_does_not_fit_the_offsets(dtype, shape, found):
    with pytest.raises(SizeMismatchError, match=found):
        parse({"w": tensor(dtype, shape, 0, 4)}, 4)


# --- refused: tiling --------------------------------------------------------------------------


def test_offsets_in_reverse():
    with pytest.raises(OffsetRangeError, match=r"start <= stop of 'w', found \[4, 0\]"):
        parse({"w": tensor("U8", [4], 4, 0)}, 4)


def test_a_tensor_beyond_the_end_hints_at_the_download():
    table = {"v": tensor("U8", [2], 0, 2), "w": tensor("U8", [4], 2, 6)}
    size = 8 + len(json.dumps(table))
    with pytest.raises(
        OffsetRangeError, match=f"'w'.*file's {size + 5} bytes, found.* {size + 6}; incomplete"
    ):
        parse(table, 5)


def test_an_overlap():
    table = {"v": tensor("U8", [4], 0, 4), "w": tensor("U8", [4], 3, 7)}
    start = 8 + len(json.dumps(table))
    with pytest.raises(OverlapError, match=f"'w' to start at {start + 4}, found {start + 3}"):
        parse(table, 7)


def test_an_empty_tensor_inside_another_is_an_overlap():
    table = {"v": tensor("U8", [4], 0, 4), "w": tensor("U8", [0], 2, 2)}
    with pytest.raises(OverlapError, match="'w'"):
        parse(table, 4)


def test_two_names_for_the_same_bytes_are_an_overlap():
    table = {"v": tensor("U8", [4], 0, 4), "w": tensor("U8", [4], 0, 4)}
    with pytest.raises(OverlapError, match="'w'"):
        parse(table, 4)


@pytest.mark.parametrize("first", [0, 1])
def test_a_hole(first):
    table = {"v": tensor("U8", [2], first, first + 2), "w": tensor("U8", [1], 5, 6)}
    with pytest.raises(HoleError, match=f"'{'w' if first == 0 else 'v'}' to start at .*, found"):
        parse(table, 6)


def test_trailing_bytes_are_a_hole():
    table = {"w": tensor("U8", [4], 0, 4)}
    end = 8 + len(json.dumps(table)) + 4
    with pytest.raises(HoleError, match=f"expected the file to end at {end} .*found {end + 1} "):
        parse(table, 5)
    with pytest.raises(HoleError, match="end at 10"):
        parse("{}", 1)


def test_messages_stay_short_whatever_the_header_holds():
    for table in (
        {"n" * 10_000: 0},
        {"w": list(range(10_000))},
        {"w": tensor("D" * 9999, [], 0, 0)},
    ):
        with pytest.raises(LayoutError) as caught:
            parse(table, 0)
        assert len(str(caught.value)) < 600


# --- fuzz -------------------------------------------------------------------------------------

VALID = save(
    {
        "w.0": np.arange(6, dtype=np.float16).reshape(2, 3),
        "w.1": np.zeros((0, 4), dtype=np.int8),
        "b": np.array(3.0),
    },
    {"format": "pt"},
)
SPLICES = [b"", b"{", b"}", b"[", b"]", b'"', b",", b":", b"-", b"0", b"9" * 25, b"1e9", b"NaN"]
SPLICES += [b"true", b"null", b"\\ud800", b'"w.0":', b"\xff", b"\0", b" ", b'{"dtype":', b"F4"]
MUTATIONS = st.lists(
    st.tuples(
        st.integers(0, len(VALID)),
        st.integers(0, 6),
        st.sampled_from(SPLICES) | st.binary(max_size=4),
    ),
    min_size=1,
    max_size=4,
)


@given(mutations=MUTATIONS)
def test_a_damaged_header_gives_entries_or_a_layout_error(tmp_path_factory, mutations):
    content = VALID
    for at, n_removed, inserted in mutations:
        content = content[:at] + inserted + content[at + n_removed :]
    tmp_path = tmp_path_factory.getbasetemp()
    try:
        entries = read(tmp_path, content)
    except LayoutError:
        return
    assert reference_accepts(content)
    header_nbytes = 8 + int.from_bytes(content[:8], "little")
    ends = [header_nbytes] + [entry.stop for entry in entries]
    assert [entry.start for entry in entries] == ends[:-1]
    assert ends[-1] == len(content)


@pytest.mark.parametrize("nbytes", range(len(VALID)))
def test_every_truncation_is_refused(nbytes):
    header = VALID[8 : 8 + int.from_bytes(VALID[:8], "little")]
    with pytest.raises(LayoutError, match=r"incomplete download|at least"):
        parse_header(header, nbytes)
