"""Source files: what is read, and how a change is noticed."""

import errno
import os
import pickle

import pytest

from tstore.errors import (
    NotRegularFileError,
    RangeError,
    SourceChangedError,
    SourceUnreadableError,
)
from tstore.hub.reader import open_source, stat_source

CONTENT = bytes(range(256)) * 5


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "model.bin"
    path.write_bytes(CONTENT)
    return path


def test_stat_gives_the_real_path_size_and_tag(path):
    link = path.with_name("link.bin")
    link.symlink_to(path)
    status = path.stat()
    file = stat_source(link)
    assert file.source == os.path.realpath(path)
    assert file.size == len(CONTENT)
    assert file.tag == f"1280:{status.st_mtime_ns}:{status.st_ctime_ns}:{status.st_ino}"
    assert file == stat_source(path)
    assert pickle.loads(pickle.dumps(file)) == file


def test_stat_of_nothing_is_unreadable(tmp_path):
    with pytest.raises(SourceUnreadableError, match=r"gone.*found No such file"):
        stat_source(tmp_path / "gone")


def test_stat_of_a_directory_or_pipe_is_no_regular_file(tmp_path):
    with pytest.raises(NotRegularFileError, match=r"expected a regular file.*found mode d"):
        stat_source(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(NotRegularFileError, match="found mode p"):
        stat_source(tmp_path / "pipe")


@pytest.mark.parametrize(("start", "stop"), [(0, 1280), (3, 700), (5, 5), (1280, 1280)])
def test_read_returns_the_bytes_in_a_fresh_writable_buffer(path, start, stop):
    with open_source(stat_source(path)) as reader:
        data = reader.read(start, stop)
        assert data.tobytes() == CONTENT[start:stop]
        data[:] = 0
        assert reader.read(start, stop).tobytes() == CONTENT[start:stop]
        reader.check_unchanged()


def test_read_goes_on_after_short_reads(path, monkeypatch):
    whole_preadv = os.preadv
    monkeypatch.setattr(
        os, "preadv", lambda fd, buffers, offset: whole_preadv(fd, [buffers[0][:100]], offset)
    )
    with open_source(stat_source(path)) as reader:
        assert reader.read(1, 1279).tobytes() == CONTENT[1:1279]


@pytest.mark.parametrize(("start", "stop"), [(-1, 4), (4, 3), (0, 1281)])
def test_read_outside_the_file_is_a_range_error(path, start, stop):
    with (
        open_source(stat_source(path)) as reader,
        pytest.raises(RangeError, match=rf"\[0, 1280\).*found \[{start}, {stop}\)"),
    ):
        reader.read(start, stop)


def test_truncation_while_reading_is_noticed(path):
    with open_source(stat_source(path)) as reader:
        os.truncate(path, 1000)
        assert reader.read(0, 1000).tobytes() == CONTENT[:1000]
        with pytest.raises(SourceChangedError, match=r"expected 1280 bytes.*its end at 1000"):
            reader.read(900, 1280)


def test_a_write_in_place_is_noticed(path):
    file = stat_source(path)
    with open_source(file) as reader:
        path.write_bytes(CONTENT[::-1])
        os.utime(path, ns=(0, 0))
        with pytest.raises(SourceChangedError, match=rf"{file.tag}, found 1280:0:"):
            reader.check_unchanged()


def test_a_replaced_path_is_noticed_though_the_open_file_is_untouched(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    path = folder / "model.bin"
    path.write_bytes(CONTENT)
    with open_source(stat_source(path)) as reader:
        folder.rename(tmp_path / "moved")
        folder.mkdir()
        path.write_bytes(CONTENT)
        assert reader.read(0, 1280).tobytes() == CONTENT
        with pytest.raises(SourceChangedError, match=f"found 1280:.*:{path.stat().st_ino};"):
            reader.check_unchanged()


def test_a_replaced_file_is_noticed(path):
    other = path.with_name("other")
    other.write_bytes(CONTENT)
    with open_source(stat_source(path)) as reader:
        os.replace(other, path)
        with pytest.raises(SourceChangedError, match="found 1280:"):
            reader.check_unchanged()


def test_a_removed_path_is_unreadable(path):
    with open_source(stat_source(path)) as reader:
        path.unlink()
        with pytest.raises(SourceUnreadableError, match="No such file"):
            reader.check_unchanged()


def test_opening_another_version_fails_and_leaks_no_descriptor(path):
    file = stat_source(path)
    path.write_bytes(CONTENT + b"more")
    n_open = len(os.listdir("/dev/fd"))
    with pytest.raises(SourceChangedError, match=r"expected .* found 1284:"):
        open_source(file).__enter__()
    assert len(os.listdir("/dev/fd")) == n_open


def test_opening_a_pipe_put_in_the_files_place_does_not_hang(path):
    file = stat_source(path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(SourceChangedError):
        open_source(file).__enter__()


def test_opening_a_removed_file_is_unreadable(path):
    file = stat_source(path)
    path.unlink()
    with pytest.raises(SourceUnreadableError, match="No such file") as caught:
        open_source(file).__enter__()
    assert caught.value.source == file.source


def test_an_io_error_is_unreadable(path, monkeypatch):
    def fail(*args):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with open_source(stat_source(path)) as reader:
        monkeypatch.setattr(os, "preadv", fail)
        with pytest.raises(SourceUnreadableError, match=r"found Input/output error; check"):
            reader.read(0, 10)
