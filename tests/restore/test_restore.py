"""Files come back byte for byte, or not at all."""

import json
import os
import subprocess
import sys
from signal import SIGKILL

import numpy as np
import pytest

from support.hubs import file_hashes, write_small_hub
from support.inline import ingest_inline
from support.stores import committed_rows, restore_all
from tstore.catalog import open_store
from tstore.catalog.blobs import BlobLocation
from tstore.errors import (
    DestinationConflictError,
    RepoNotFoundError,
    RevisionNotFoundError,
    UnsafePathError,
)
from tstore.restore import files as files_module
from tstore.restore import reader as reader_module
from tstore.restore.files import restore_repo
from tstore.restore.reader import TensorReader
from tstore.restore.verify import verify
from tstore.settings import TaskSettings


def test_every_file_of_the_small_hub(small_hub, small_store, tmp_path):
    assert file_hashes(restore_all(small_store, tmp_path)) == file_hashes(small_hub)


def test_the_report_counts_the_files(small_hub, small_store, tmp_path):
    seen = []
    report = restore_repo(open_store(str(small_store)), "lab/base", tmp_path, on_file=seen.append)
    assert [file.path for file in seen] == ["README.md", "config.json", "model.safetensors"]
    assert (report.revision, report.files, report.files_kept) == ("main", 3, 0)
    assert report.nbytes == sum(p.stat().st_size for p in (small_hub / "lab/base").iterdir())


# --- odd files --------------------------------------------------------------------------------


def raw_safetensors(entries, padding=0):
    """A file of (name, dtype, shape, bytes), its header padded with spaces."""
    header, data = {"__metadata__": {"é": "1"}}, b""
    for name, dtype, shape, raw in entries:
        offsets = [len(data), len(data) + len(raw)]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
        data += raw
    text = json.dumps(header).encode() + b" " * padding
    return len(text).to_bytes(8, "little") + text + data


def odd_entries(rng, flip=0.0):
    """Empty, scalar, odd-sized and packed tensors; some large enough to be a delta of another."""
    sizes = {
        "scalar": ("F32", [], 4),
        "empty": ("I64", [0, 3], 0),
        "three": ("U8", [3], 3),
        "bools": ("BOOL", [5], 5),
        "tiny-f4": ("F4", [2], 1),
        "tiny-f6": ("F6_E2M3", [4], 3),
        "complex": ("C64", [3], 24),
        "empty-f4": ("F4", [0], 0),
        "f4": ("F4", [2, 20001], 20001),
        "f6": ("F6_E3M2", [28004], 21003),
        "f8": ("F8_E8M0", [17003], 17003),
        "u8": ("U8", [18001], 18001),
        "f16": ("F16", [3, 3001], 18006),
        "f64": ("F64", [1, 2777], 22216),
        "i16": ("I16", [9501], 19002),
    }
    for name, (dtype, shape, nbytes) in sizes.items():
        raw = np.random.default_rng(len(name)).integers(0, 256, nbytes, np.uint8)
        raw ^= np.packbits(rng.random(8 * nbytes) < flip)
        yield name, dtype, shape, raw.tobytes()


def test_odd_files(tmp_path):
    hub, store, rng = tmp_path / "hub", tmp_path / "store", np.random.default_rng(5)
    noise = rng.integers(0, 256, 70_001, np.uint8).tobytes()
    contents = {
        "org/a/model.safetensors": raw_safetensors(odd_entries(rng)),
        "org/b/model.safetensors": raw_safetensors(odd_entries(rng, flip=0.003), padding=3),
        "org/a/only-header.safetensors": raw_safetensors([]),
        "org/a/empty.safetensors": b"",
        "org/a/empty": b"",
        "org/a/zero bytes/deep/é ü.txt": b"\0",
        "org/a/weights.bin": noise,
        "org/a/truncated.safetensors": raw_safetensors(odd_entries(rng))[:-1],
        "org/a/huge-header.safetensors": b"\xff" * 8 + noise,
    }
    for path, content in contents.items():
        (hub / path).parent.mkdir(parents=True, exist_ok=True)
        (hub / path).write_bytes(content)

    ingest_inline(hub, store, tasks=TaskSettings(opaque_extent_nbytes=10_000))

    restored = restore_all(store, tmp_path / "restored")
    assert file_hashes(restored) == file_hashes(hub)
    assert {path: (restored / path).read_bytes() for path in contents} == contents
    assert verify(open_store(str(store)), read_data=True).problems == []
    rows = committed_rows(store)
    dtypes = {row["dtype"] for row in rows["blobs"].to_pylist() if row["base_id"]}
    assert dtypes == {"F4", "F6_E3M2", "F8_E8M0", "U8", "F16", "F64", "I16"}, "all were deltas"
    lengths = {row["path"]: len(row["layout"]) for row in rows["files"].to_pylist()}
    assert lengths["weights.bin"] == 8
    assert lengths["empty"] == lengths["empty.safetensors"] == 0


def test_a_base_is_decoded_once_while_there_is_room(small_store, tmp_path, monkeypatch):
    decoded = []
    decode = BlobLocation.decode

    def counted(blob, *args):
        decoded.append(blob.tensor_id)
        return decode(blob, *args)

    monkeypatch.setattr(BlobLocation, "decode", counted)
    store = open_store(str(small_store))
    restore_repo(store, "lab/tuned", tmp_path / "one")
    assert len(decoded) == len(set(decoded))
    monkeypatch.setattr(reader_module, "CACHE_NBYTES", 0)
    restore_repo(store, "lab/tuned", tmp_path / "two")
    assert file_hashes(tmp_path / "one") == file_hashes(tmp_path / "two")


# --- which revision ---------------------------------------------------------------------------


def test_old_states_of_a_revision(tmp_path):
    hub, store = write_small_hub(tmp_path / "hub"), tmp_path / "store"
    states = []
    for number in range(3):
        (hub / "lab/base/config.json").write_text(f'{{"state": {number}, "pad": "{"x" * number}"}}')
        run = ingest_inline(hub, store).run_id
        states.append((run, file_hashes(hub / "lab/base")))
    opened = open_store(str(store))
    for number, (run, expected) in enumerate(states):
        report = restore_repo(opened, "lab/base", tmp_path / str(number), revision=f"main@{run}")
        assert report.revision == "main"
        assert file_hashes(tmp_path / str(number)) == expected
    restore_repo(opened, "lab/base", tmp_path / "now", revision="main")
    assert file_hashes(tmp_path / "now") == states[-1][1]
    restore_repo(opened, "lab/tuned", tmp_path / "t", revision=f"main@{states[1][0]}")
    assert file_hashes(tmp_path / "t") == file_hashes(hub / "lab/tuned")


@pytest.mark.parametrize(
    ("repo", "revision", "error", "text"),
    [
        ("lab/nothing", None, RepoNotFoundError, "'lab/nothing' in the store, found none"),
        ("lab", None, RepoNotFoundError, "'lab'"),
        ("", None, RepoNotFoundError, "''"),
        ("lab/base", "dev", RevisionNotFoundError, r"found only main \(main\)"),
        ("lab/base", "main@20200101T000000.000000Z", RevisionNotFoundError, "committed run '2020"),
        ("lab/base", "main@zzz", RevisionNotFoundError, "committed run 'zzz'"),
        ("lab/base", "main@@", RevisionNotFoundError, "committed run '@'"),
    ],
)
def test_what_is_not_there(small_store, tmp_path, repo, revision, error, text):
    with pytest.raises(error, match=text):
        restore_repo(open_store(str(small_store)), repo, tmp_path / "out", revision=revision)
    assert not (tmp_path / "out").exists()


# --- the destination --------------------------------------------------------------------------


@pytest.fixture
def restore_base(small_store):
    """Restores lab/base to a directory."""
    return lambda folder: restore_repo(open_store(str(small_store)), "lab/base", folder)


def test_the_same_content_is_kept(restore_base, tmp_path):
    out = tmp_path / "out"
    restore_base(out)

    def versions():
        return {entry.name: (entry.inode(), entry.stat().st_mtime_ns) for entry in os.scandir(out)}

    before = versions()
    assert restore_base(out).files_kept == 3
    assert versions() == before


@pytest.mark.parametrize("content", [b"# other", b"# lab/bass\n", b""])
def test_other_content_is_refused_and_left_alone(restore_base, tmp_path, content):
    (tmp_path / "README.md").write_bytes(content)
    with pytest.raises(DestinationConflictError, match=r"README\.md, found one with other content"):
        restore_base(tmp_path)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {"README.md": content}


def test_other_files_are_not_touched(restore_base, small_hub, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    restore_base(tmp_path)
    (tmp_path / "mine.txt").unlink()
    assert file_hashes(tmp_path) == file_hashes(small_hub / "lab/base")


@pytest.mark.parametrize("kind", ["directory", "link to the same content", "dangling link"])
def test_only_a_regular_file_counts_as_the_same(restore_base, small_hub, tmp_path, kind):
    path = tmp_path / "out" / "README.md"
    path.parent.mkdir()
    if kind == "directory":
        path.mkdir()
    else:
        target = small_hub / "lab/base/README.md" if "same" in kind else tmp_path / "nowhere"
        path.symlink_to(target)
    with pytest.raises(DestinationConflictError):
        restore_base(path.parent)
    assert list(path.parent.iterdir()) == [path]
    assert not (tmp_path / "nowhere").exists()


@pytest.fixture(scope="module")
def deep_store(tmp_path_factory):
    """A store of one repository with the one file sub/deep/x."""
    folder = tmp_path_factory.mktemp("deep")
    (folder / "hub/org/name/sub/deep").mkdir(parents=True)
    (folder / "hub/org/name/sub/deep/x").write_text("x")
    ingest_inline(folder / "hub", folder / "store")
    return open_store(str(folder / "store"))


@pytest.mark.parametrize("link", ["sub", "sub/deep"])
def test_a_linked_directory_does_not_lead_outside(deep_store, tmp_path, link):
    (tmp_path / "outside/deep").mkdir(parents=True)
    (tmp_path / "out" / link).parent.mkdir(parents=True)
    (tmp_path / "out" / link).symlink_to(tmp_path / "outside")
    with pytest.raises(UnsafePathError, match="symbolic link"):
        restore_repo(deep_store, "org/name", tmp_path / "out")
    assert [p.name for p in (tmp_path / "outside").rglob("*")] == ["deep"]


def test_the_destination_itself_may_be_a_link(deep_store, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "out").symlink_to("real")
    restore_repo(deep_store, "org/name", tmp_path / "out")
    assert (tmp_path / "real/sub/deep/x").read_text() == "x"


@pytest.mark.parametrize("file", ["sub", "sub/deep"])
def test_a_file_where_a_directory_belongs_is_a_conflict(deep_store, tmp_path, file):
    (tmp_path / "out" / file).parent.mkdir(parents=True)
    (tmp_path / "out" / file).write_text("mine")
    with pytest.raises(DestinationConflictError, match="directory"):
        restore_repo(deep_store, "org/name", tmp_path / "out")
    assert (tmp_path / "out" / file).read_text() == "mine"


# --- interruptions ----------------------------------------------------------------------------


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_an_interrupted_file_leaves_nothing(small_hub, small_store, tmp_path, monkeypatch, error):
    read_all, count = TensorReader.read_all, 0

    def read_a_few(self, tensor_ids):
        nonlocal count
        for data in read_all(self, tensor_ids):
            count += 1
            if count > 5:
                raise error
            yield data

    store = open_store(str(small_store))
    with monkeypatch.context() as patch:
        patch.setattr(files_module.TensorReader, "read_all", read_a_few)
        with pytest.raises(type(error)):
            restore_repo(store, "lab/base", tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["README.md", "config.json"]
    assert restore_repo(store, "lab/base", tmp_path).files_kept == 2
    assert file_hashes(tmp_path) == file_hashes(small_hub / "lab/base")


DIE_HALFWAY = """
import os, signal, sys
from pathlib import Path
from tstore.catalog import open_store
from tstore.catalog.blobs import BlobLocation
from tstore.restore.files import restore_repo
from tstore.restore.reader import TensorReader
read_all, count = TensorReader.read_all, 0
def read_a_few(self, tensor_ids):
    global count
    for data in read_all(self, tensor_ids):
        count += 1
        if count > 5:
            os.kill(os.getpid(), signal.SIGKILL)
        yield data
TensorReader.read_all = read_a_few
restore_repo(open_store(sys.argv[1]), "lab/base", Path(sys.argv[2]))
"""


def test_a_killed_restore_leaves_no_file_under_its_final_name(small_hub, small_store, tmp_path):
    command = [sys.executable, "-c", DIE_HALFWAY, str(small_store), str(tmp_path)]
    assert subprocess.run(command, check=False).returncode == -SIGKILL
    expected = file_hashes(small_hub / "lab/base")
    found = file_hashes(tmp_path)
    named = {name: digest for name, digest in found.items() if not name.startswith(".tstore-")}
    assert named == {name: expected[name] for name in ("README.md", "config.json")}
    assert len(found) == 3
    assert restore_repo(open_store(str(small_store)), "lab/base", tmp_path).files_kept == 2
    assert expected.items() <= file_hashes(tmp_path).items()
