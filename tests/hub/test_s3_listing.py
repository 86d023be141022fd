"""Objects as a hub: keys that no directory could hold, and the same layouts as directories."""

import hashlib
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tstore.errors import HubNotFoundError
from tstore.hub import s3_listing
from tstore.hub.reader import SourceFile
from tstore.hub.snapshot import list_hub
from tstore.objects import ObjectInfo

ROOT = "s3://bucket/hub"


class Keys:
    """Stands for an object store of which only the listing is needed."""

    def __init__(self, sizes):
        self._sizes = sizes

    def list(self, prefix):
        for key, size in self._sizes.items():
            if key.startswith(prefix):
                yield ObjectInfo(key, size, version(key))


def version(key):
    return hashlib.md5(key.encode()).hexdigest()


def listed(sizes, root=ROOT, **patterns):
    """Snapshot of objects, given as {key relative to the root: size}."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(s3_listing, "open_objects", lambda uri: Keys(sizes))
        return list_hub(root, **patterns)


def names(snapshot):
    return [(file.repo, file.path) for file in snapshot.files]


def reasons(snapshot):
    return [(r.repo, r.path, r.reason) for r in snapshot.rejects]


@pytest.mark.parametrize("root", [ROOT, f"{ROOT}/", f"{ROOT}//"])
def test_a_source_is_the_address_of_its_object_and_its_tag_tells_the_version(root):
    snapshot = listed({"org/name/model.bin": 7}, root)
    assert snapshot.root == ROOT
    (file,) = snapshot.files
    assert file.source == SourceFile(
        f"{ROOT}/org/name/model.bin", 7, f"7:{version('org/name/model.bin')}"
    )


def test_a_single_repository_has_the_name_of_the_prefix_or_the_bucket():
    assert names(listed({"config.json": 1})) == [("hub", "config.json")]
    assert names(listed({"config.json": 1}, "s3://bucket")) == [("bucket", "config.json")]


def test_a_prefix_without_objects_is_no_hub():
    with pytest.raises(HubNotFoundError, match=r"expected objects below s3://bucket/hub/, found"):
        listed({})


def test_markers_of_directories_are_left_out():
    snapshot = listed({"": 0, "org/": 0, "org/name/": 0, "org/name/config.json": 1, "org/e/": 0})
    assert names(snapshot) == [("org/name", "config.json")]
    assert snapshot.rejects == ()
    empty = listed({"": 0})
    assert (empty.files, empty.rejects) == ((), ())


def test_keys_that_are_no_safe_path_are_rejects():
    bad = {
        "/x": ("", "x"),
        "/abs/config.json": ("/abs", "config.json"),
        "../up": ("..", "up"),
        "org/name/a//b": ("org/name", "a//b"),
        "org/name/../../etc": ("org/name", "../../etc"),
        "org/name/./x": ("org/name", "./x"),
        "org/name/a\\b": ("org/name", "a\\b"),
        "org/name/a\0b": ("org/name", "a\0b"),
        "org/name/full/": ("org/name", "full/"),
        "models--o--..--..--x/snapshots/c/f": ("o/../../x", "f"),
    }
    snapshot = listed({**dict.fromkeys(bad, 5), "org/name/config.json": 1})
    assert names(snapshot) == [("org/name", "config.json")]
    assert reasons(snapshot) == sorted((*place, "UnsafePathError") for place in bad.values())
    assert {reject.size for reject in snapshot.rejects} == {5}
    assert "found 'org/name/a//b'; it is refused" in str(snapshot.rejects)


def test_an_object_below_another_object_is_a_reject():
    snapshot = listed(
        {
            "org/name/a": 1,
            "org/name/a/b": 2,
            "org/name/a/b/c": 3,
            "org/name/a-b": 4,
            "org/name/ab/a": 5,
            "org/other/a/b": 6,
            "org/file": 7,
            "org/file/below": 8,
        }
    )
    assert names(snapshot) == [
        ("org", "file"),
        ("org/name", "a"),
        ("org/name", "a-b"),
        ("org/name", "ab/a"),
        ("org/other", "a/b"),
    ]
    assert reasons(snapshot) == [
        ("org/file", "below", "PathConflictError"),
        ("org/name", "a/b", "PathConflictError"),
        ("org/name", "a/b/c", "PathConflictError"),
    ]
    assert snapshot.rejects[1].message == (
        "expected a directory at 'org/name/a', found a file, which is kept: no file system holds "
        "it and 'a/b' below it; rename one of them"
    )
    assert [reject.size for reject in snapshot.rejects] == [8, 2, 3]


def test_what_lay_below_before_the_file_came_is_not_kept_with_it():
    snapshot = listed({"org/name/a": 1, "org/name/a/b": 2, "org/name/x//y": 2})
    assert not snapshot.says_nothing_of("org/name", "main", "a/b")
    assert snapshot.says_nothing_of("org/name", "main", "x//y")


def test_revisions_do_not_conflict_with_one_another():
    snapshot = listed({"models--o--n/snapshots/c/a": 1, "models--o--n/snapshots/d/a/b": 1})
    assert [(file.revision, file.path) for file in snapshot.files] == [("c", "a"), ("d", "a/b")]


def test_an_object_of_the_name_of_a_cache_directory():
    snapshot = listed({"models--o--n": 1, "models--o--n/snapshots/c/f": 1})
    assert names(snapshot) == [("@hub", "models--o--n"), ("o/n", "f")]


def test_patterns_and_the_prefix_above_a_cache():
    sizes = {
        "token": 1,
        "xet/models/x": 1,
        "hub/models--o--n/snapshots/c/model.bin": 2,
        "hub/models--o--n/snapshots/c/README.md": 2,
        "hub/models--o--n/blobs/abc": 2,
    }
    snapshot = listed(sizes, exclude=["*.md"])
    assert snapshot.root == f"{ROOT}/hub"
    assert names(snapshot) == [("o/n", "model.bin")]
    assert snapshot.rejects == ()
    assert snapshot.files[0].source.source == f"{ROOT}/hub/models--o--n/snapshots/c/model.bin"
    assert names(listed({**sizes, "models--p--q/x": 1}))[0] == ("@hub", "token")


NAMES = st.sampled_from(
    ["a", "b", "hub", ".git", "config.json", "m.bin", "snapshots", "blobs", "models--o--n", "c" * 9]
)
PATHS = st.sets(st.lists(NAMES, min_size=1, max_size=5).map("/".join), min_size=1, max_size=10).map(
    lambda paths: {p for p in paths if not any(other.startswith(f"{p}/") for other in paths)}
)


@settings(max_examples=60)
@given(paths=PATHS)
def test_a_directory_and_its_objects_are_the_same_hub(paths):
    sizes = {path: len(path) for path in sorted(paths)}
    with tempfile.TemporaryDirectory() as folder:
        top = Path(os.path.realpath(folder), "hub")
        for path, size in sizes.items():
            (top / path).parent.mkdir(parents=True, exist_ok=True)
            (top / path).write_bytes(bytes(size))
        local = list_hub(str(top))
        inside = os.path.relpath(local.root, top.parent)
    remote = listed(sizes)
    assert remote.root == f"s3://bucket/{inside}"
    assert remote.refs == local.refs
    assert [(f.repo, f.revision, f.path, f.source.size) for f in remote.files] == [
        (f.repo, f.revision, f.path, f.source.size) for f in local.files
    ]
    assert [(r.repo, r.revision, r.path, r.reason, r.size) for r in remote.rejects] == [
        (r.repo, r.revision, r.path, r.reason, r.size) for r in local.rejects
    ]
