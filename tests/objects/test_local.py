"""What only a directory does: leftovers of dead writers, and disks that refuse."""

import errno
import os
import subprocess
import sys

import pytest

from tstore.errors import StoreNotWritableError

DIE_HALFWAY = """
import os, signal, sys
from tstore.objects import open_objects
def parts():
    yield bytes(1 << 20)
    os.kill(os.getpid(), signal.SIGKILL)
open_objects(sys.argv[1]).put("k", parts())
"""


def test_what_killed_writers_left_is_removed_once_it_is_old(local_objects, tmp_path):
    command = [sys.executable, "-c", DIE_HALFWAY, local_objects.uri]
    subprocess.run(command, check=False)
    local_objects.put("kept", [b"x"])

    def files():
        return {name for _, _, names in os.walk(tmp_path) for name in names}

    assert len(files()) == 2
    local_objects.remove_abandoned(3600)
    assert len(files()) == 2, "its writer may still be at work"
    local_objects.remove_abandoned(-1)
    assert files() == {"kept"}


def files_below(folder):
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("call", ["write", "fsync", "open"])
@pytest.mark.parametrize("put", ["put", "put_new"])
def test_a_disk_that_refuses_is_named_and_nothing_is_left(
    local_objects, tmp_path, monkeypatch, put, call
):
    local_objects.put("kept", [b"x"])

    def refuse(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, refuse)
        with pytest.raises(StoreNotWritableError, match=r"a/k, found: No space .*; free space"):
            getattr(local_objects, put)("a/k", [b"abc"])
    assert files_below(tmp_path) == ["kept"]
    getattr(local_objects, put)("a/k", [b"abc"])
    assert local_objects.get("a/k") == b"abc"


@pytest.mark.parametrize(
    ("code", "advice"),
    [(errno.EDQUOT, "quota"), (errno.EROFS, "mount"), (errno.EACCES, "allow"), (errno.EIO, "disk")],
)
def test_each_refusal_has_its_advice(local_objects, tmp_path, monkeypatch, code, advice):
    def refuse(*arguments):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(StoreNotWritableError, match=f"{os.strerror(code)}; .*{advice}"):
        local_objects.put_new("k", [b"abc"])
    assert files_below(tmp_path) == []


def test_a_full_disk_does_not_lose_the_old_version(local_objects, tmp_path, monkeypatch):
    local_objects.put("k", [b"old"])
    version = local_objects.get_versioned("k")[1]
    write = os.write

    def refuse(file, data):
        if len(data) > 2:
            return write(file, data[:2])  # as much as there is room for
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", refuse)
    with pytest.raises(StoreNotWritableError):
        local_objects.put_if_match("k", [b"newer"], version)
    assert local_objects.get_versioned("k") == (b"old", version)


def test_a_source_that_cannot_be_read_is_not_the_fault_of_the_store(local_objects):
    def parts():
        yield b"abc"
        raise OSError(errno.EIO, "the hub's disk")

    with pytest.raises(OSError, match="the hub's disk"):
        local_objects.put("k", parts())
