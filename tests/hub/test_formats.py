"""Extents: they tile every file, whatever is in it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save

from tstore.errors import HeaderTooLargeError, HeaderTruncatedError, OffsetRangeError, OverlapError
from tstore.hub import formats
from tstore.hub.formats import Extent, file_extents
from tstore.hub.reader import open_source, stat_source
from tstore.hub.safetensors_header import TensorEntry


def cut(folder, name, content, opaque_nbytes=1 << 20, tensor_nbytes=1 << 20):
    path = folder / "content"
    path.write_bytes(content)
    with open_source(stat_source(path)) as reader:
        extents, error = file_extents(
            reader, name, opaque_nbytes=opaque_nbytes, tensor_nbytes=tensor_nbytes
        )
    ends = [0] + [extent.stop for extent in extents]
    assert [extent.start for extent in extents] == ends[:-1]
    assert ends[-1] == len(content)
    assert [extent.index for extent in extents] == list(range(len(extents)))
    return extents, error


def test_a_safetensors_file_is_its_header_and_its_tensors(tmp_path):
    content = save({"w": np.ones((2, 3), np.float32), "b": np.ones(5, np.uint8)})
    n = 8 + int.from_bytes(content[:8], "little")
    extents, error = cut(tmp_path, "a/model.safetensors", content)
    assert error is None
    assert extents == [
        Extent(0, None, "OPAQUE", (n,), 0, n),
        Extent(1, "w", "F32", (2, 3), n, n + 24),
        Extent(2, "b", "U8", (5,), n + 24, n + 29),
    ]


def test_zero_size_tensors_are_extents_of_no_bytes(tmp_path):
    content = save({"e": np.zeros((2, 0), np.float32), "w": np.ones(1, np.uint8)})
    extents, error = cut(tmp_path, "m.safetensors", content)
    assert error is None
    (empty,) = [extent for extent in extents if extent.name == "e"]
    assert (empty.shape, empty.stop - empty.start) == ((2, 0), 0)
    assert len(extents) == 3


def test_a_header_larger_than_an_opaque_piece_is_cut(tmp_path):
    content = save({"w": np.ones(4, np.uint8)}, {"note": "x" * 60})
    extents, error = cut(tmp_path, "m.safetensors", content, opaque_nbytes=50)
    assert error is None
    assert [e.stop - e.start for e in extents[:-1]][:2] == [50, 50]
    assert all(e.name is None and e.shape == (e.stop - e.start,) for e in extents[:-1])
    assert extents[-1].name == "w"


def test_a_metadata_only_file_is_opaque_without_error(tmp_path):
    content = b"\x02\0\0\0\0\0\0\0{}"
    assert cut(tmp_path, "m.safetensors", content) == (
        [Extent(0, None, "OPAQUE", (10,), 0, 10)],
        None,
    )


@pytest.mark.parametrize("name", ["README.md", "model.safetensors.index.json", "m.bin", "m.gguf"])
def test_other_files_are_opaque_pieces(tmp_path, name):
    content = save({"w": np.ones(100, np.uint8)})[:150]
    extents, error = cut(tmp_path, name, content, opaque_nbytes=64)
    assert error is None
    assert [(e.name, e.dtype, e.shape) for e in extents] == [
        (None, "OPAQUE", (64,)),
        (None, "OPAQUE", (64,)),
        (None, "OPAQUE", (22,)),
    ]


def test_a_file_that_cannot_be_parsed_is_opaque_with_its_error(tmp_path):
    content = save({"w": np.ones(100, np.uint8)})[:-1]
    extents, error = cut(tmp_path, "m.safetensors", content)
    assert type(error) is OffsetRangeError
    assert "'w'" in str(error)
    assert error.__traceback__ is None
    assert [(e.name, e.dtype, e.shape) for e in extents] == [(None, "OPAQUE", (len(content),))]
    _, error = cut(tmp_path, "m.safetensors", b"<html>not found</html>")
    assert type(error) is HeaderTooLargeError


def test_empty_files_have_no_extents(tmp_path):
    assert cut(tmp_path, "empty.txt", b"") == ([], None)
    extents, error = cut(tmp_path, "empty.safetensors", b"")
    assert extents == []
    assert type(error) is HeaderTruncatedError


@given(size=st.integers(0, 300), opaque_nbytes=st.integers(1, 400))
def test_opaque_pieces_have_the_asked_size(tmp_path_factory, size, opaque_nbytes):
    folder = tmp_path_factory.getbasetemp()
    extents, _ = cut(folder, "x", bytes(size), opaque_nbytes)
    sizes = [extent.stop - extent.start for extent in extents]
    assert all(s == opaque_nbytes for s in sizes[:-1])
    assert all(0 < s <= opaque_nbytes for s in sizes)


class Middle:
    """A format with one tensor of four bytes at offset 3."""

    name = "middle"

    def matches(self, path):
        return path.endswith(".mid")

    def entries(self, reader):
        if reader.file.size < 7:
            raise OverlapError("too small")
        return [TensorEntry("w", "U8", (4,), 3, 7)]


def test_a_format_need_only_name_its_tensors(tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "FORMATS", (*formats.FORMATS, Middle()))
    extents, error = cut(tmp_path, "m.mid", b"0123456789")
    assert error is None
    assert [(e.name, e.start, e.stop) for e in extents] == [
        (None, 0, 3),
        ("w", 3, 7),
        (None, 7, 10),
    ]
    extents, error = cut(tmp_path, "m.mid", b"012")
    assert type(error) is OverlapError
    assert [(e.name, e.start, e.stop) for e in extents] == [(None, 0, 3)]


BITS = {"F4": 4, "F6_E2M3": 6, "U8": 8, "BF16": 16, "F64": 64, "C64": 64}


def parts_of(shape, dtype, limit, start=100):
    nbytes, rest = divmod(int(np.prod(shape)) * BITS[dtype], 8)
    assert not rest
    entry = TensorEntry("w", dtype, shape, start, start + nbytes)
    return list(formats._tensor(entry, limit)), start + nbytes


@given(
    dims=st.lists(st.integers(1, 12), min_size=1, max_size=4),
    dtype=st.sampled_from(sorted(BITS)),
    limit=st.integers(48, 300),
)
def test_parts_of_a_tensor_tile_it_and_are_tensors_themselves(dims, dtype, limit):
    shape = (8 * dims[0], *dims[1:])  # whole bytes, whatever the dtype
    parts, end = parts_of(shape, dtype, limit)
    assert [start for _, _, _, start, _, _ in parts] == [100, *(stop for *_, stop, _ in parts[:-1])]
    assert parts[-1][4] == end
    if len(parts) == 1:
        assert parts[0][2:] == (shape, 100, end, None)
        return
    for number, (name, kind, part_shape, start, stop, part) in enumerate(parts):
        assert (name, kind, part) == ("w", dtype, number)
        assert 0 < stop - start <= limit
        assert int(np.prod(part_shape)) * BITS[dtype] == 8 * (stop - start)
    assert len({shape for _, _, shape, *_ in parts[:-1]}) == 1


def test_a_tensor_is_cut_along_its_rows():
    parts, _ = parts_of((10, 8, 3), "BF16", 100)
    assert [part[2] for part in parts] == [(2, 8, 3)] * 5
    assert parts_of((2, 8, 3), "BF16", 96)[0] == [("w", "BF16", (2, 8, 3), 100, 196, None)]


def test_leading_dimensions_of_one_are_no_obstacle():
    parts, _ = parts_of((1, 10, 8, 3), "BF16", 100)
    assert [part[2] for part in parts] == [(2, 8, 3)] * 5
    parts, _ = parts_of((1, 1000), "BF16", 600)
    assert [part[2] for part in parts] == [(300,), (300,), (300,), (100,)]


def test_more_rows_leave_the_parts_before_them_as_they_were():
    before, _ = parts_of((10, 16), "BF16", 100)
    grown, _ = parts_of((13, 16), "BF16", 100)
    assert grown[:3] == before[:3]


def test_elements_of_six_bits_are_cut_between_bytes():
    parts, _ = parts_of((1, 400), "F6_E2M3", 150)
    assert [part[2] for part in parts] == [(192,), (192,), (16,)]
