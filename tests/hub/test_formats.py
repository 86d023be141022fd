"""Extents: they tile every file, whatever is in it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save

from tstore.errors import HeaderTooLargeError, HeaderTruncatedError, OffsetRangeError, OverlapError
from tstore.hub import formats
from tstore.hub.formats import Extent, file_extents
from tstore.hub.reader import SourceReader, stat_source
from tstore.hub.safetensors_header import TensorEntry


def cut(folder, name, content, opaque_nbytes=1 << 20):
    path = folder / "content"
    path.write_bytes(content)
    with SourceReader(stat_source(path)) as reader:
        extents, error = file_extents(reader, name, opaque_nbytes=opaque_nbytes)
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
