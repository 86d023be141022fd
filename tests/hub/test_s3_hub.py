"""Hubs on a real S3 server: listing and reading."""

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from safetensors.numpy import save

from tstore.errors import (
    AccessDeniedError,
    BucketNotFoundError,
    CredentialsRefusedError,
    HubNotFoundError,
    LocationError,
    ObjectStoreUnavailableError,
    RangeError,
    SourceChangedError,
    SourceUnreadableError,
)
from tstore.hub.formats import SafetensorsFormat
from tstore.hub.location import HubLocation
from tstore.hub.reader import SourceFile, open_source
from tstore.hub.s3_reader import READ_AHEAD_NBYTES
from tstore.hub.snapshot import list_hub
from tstore.objects import open_objects
from tstore.objects.s3 import S3Objects
from tstore.objects.s3_config import S3Config

COMMIT = "0123456789abcdef0123456789abcdef01234567"
OTHER = "f" * 40
ENTRY = "models--org--name"


@pytest.fixture
def root(s3):
    """Address of a hub below which there is nothing yet."""
    return s3.uri("hub")


def upload(root, files):
    """Objects of {key relative to the root: content}."""
    objects = open_objects(root)
    for key, content in files.items():
        objects.put(key, [content])


def write(folder, files):
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)


def names(snapshot):
    return [(file.repo, file.revision, file.path) for file in snapshot.files]


def read(source):
    with open_source(source) as reader:
        data = reader.read(0, source.size).tobytes()
        reader.check_unchanged()
    return data


# --- listing ----------------------------------------------------------------------------------

DIRECTORY_HUB = {
    "solo/model.safetensors": b"1",
    "solo/onnx/x": b"22",
    "solo/.git/HEAD": b"",
    "org/a/config.json": b"333",
    "org/b/deep/er/x": b"",
    "org/loose.txt": b"4444",
    "top.txt": b"5",
}
SINGLE = {"config.json": b"{}", "sub/dir/x.txt": b"x", ".cache/x": b""}
CACHE = {
    f"{ENTRY}/snapshots/{COMMIT}/model.safetensors": b"weights",
    f"{ENTRY}/snapshots/{OTHER}/model.safetensors": b"others",
    f"{ENTRY}/snapshots/stray": b"s",
    f"{ENTRY}/refs/main": COMMIT.encode(),
    f"{ENTRY}/refs/pr/1": COMMIT.encode() + b"\n",
    f"{ENTRY}/refs/gone": b"a" * 40,
    f"{ENTRY}/refs/odd": b"ref: x",
    f"{ENTRY}/blobs/abc": b"weights",
    f"{ENTRY}/.no_exist/{COMMIT}/adapter.json": b"",
    ".locks/models--org--name/abc.lock": b"",
    "datasets--org--text/snapshots/c/x": b"x",
    "mine/config.json": b"{}",
}
ABOVE_CACHE = {"token": b"secret", "xet/c/d": b"", **{f"hub/{k}": v for k, v in CACHE.items()}}
ODD_NAMES = {
    f"org/name/{name}": name.encode()
    for name in [
        "with space",
        "ünïcødé/日本.bin",
        "100%25+plus&x=y?z#h;a",
        "+",
        "%2F",
        "quote'\"<>",
        "~!$()*,:@[]{}|^`",
        "new\nline\x01",
        " lead and trail ",
    ]
}


@pytest.mark.parametrize("files", [DIRECTORY_HUB, SINGLE, CACHE, ABOVE_CACHE, ODD_NAMES])
def test_an_uploaded_directory_is_the_same_hub(files, root, tmp_path):
    folder = tmp_path / root.rpartition("/")[2]
    write(folder, files)
    upload(root, files)
    local, remote = list_hub(str(folder)), list_hub(root)
    assert remote.root == root + local.root.removeprefix(os.path.realpath(folder))
    assert remote.refs == local.refs
    assert names(remote) == names(local)
    assert [(r.repo, r.revision, r.path, r.reason, r.size) for r in remote.rejects] == [
        (r.repo, r.revision, r.path, r.reason, r.size) for r in local.rejects
    ]
    for one, other in zip(remote.files, local.files, strict=True):
        assert one.source.size == other.source.size
        assert read(one.source) == read(other.source)


def test_an_object_below_another_one_and_a_marker_of_a_directory(root):
    upload(root, {"org/name/a": b"1", "org/name/a/b": b"22"})
    bucket, _, prefix = root.removeprefix("s3://").partition("/")
    client = S3Config.from_environment().client()
    client.put_object(Bucket=bucket, Key=f"{prefix}/org/name/empty/")
    snapshot = list_hub(root)
    assert names(snapshot) == [("org/name", "main", "a")]
    assert [(r.path, r.reason, r.size) for r in snapshot.rejects] == [
        ("a/b", "PathConflictError", 2)
    ]


def test_patterns_select_objects(root):
    upload(root, DIRECTORY_HUB)
    snapshot = list_hub(root, include=["org/*"], exclude=["*.txt", "org/b"])
    assert names(snapshot) == [("org/a", "main", "config.json")]
    assert snapshot.refs == {("org/a", "main"): ("main",)}


def test_a_prefix_ends_at_a_slash(root):
    upload(root, {"org/name/x": b"1"})
    upload(f"{root}2", {"org/name/y": b"2"})
    upload(root.rpartition("/")[0], {f"{root.rpartition('/')[2]}.txt": b"3"})
    assert names(list_hub(root)) == names(list_hub(f"{root}/")) == [("org/name", "main", "x")]
    with pytest.raises(HubNotFoundError, match=rf"expected objects below {root[:-1]}/"):
        list_hub(root[:-1])


def test_more_objects_than_a_page_holds(root):
    keys = [f"org/r{i % 7}/{i:04}.txt" for i in range(1_100)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda key: upload(root, {key: b""}), keys))
    snapshot = list_hub(root)
    assert sorted(f"{file.repo}/{file.path}" for file in snapshot.files) == sorted(keys)
    assert snapshot.rejects == ()


def test_a_tag_tells_one_version_from_another(root):
    upload(root, {"org/name/x": b"one", "org/name/y": b"yyy"})
    before = [file.source for file in list_hub(root).files]
    upload(root, {"org/name/x": b"two"})
    after = [file.source for file in list_hub(root).files]
    assert [source.source for source in after] == [f"{root}/org/name/x", f"{root}/org/name/y"]
    assert before[0].tag != after[0].tag
    assert before[1] == after[1]
    assert all(source.tag.startswith("3:") for source in before + after)


def test_what_is_no_place(s3):
    with pytest.raises(BucketNotFoundError, match="s3://no-such-bucket"):
        list_hub("s3://no-such-bucket/hub")
    for uri in ["s3://", "s3:///x", "s3://tests/a//b", "s3://tests/../b"]:
        with pytest.raises(LocationError, match="expected a location like s3://bucket/prefix"):
            list_hub(uri)


def test_refused_credentials_are_no_bad_files(root, monkeypatch):
    upload(root, {"org/name/x": b"1"})
    (file,) = list_hub(root).files
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(CredentialsRefusedError):
        list_hub(root)
    with pytest.raises(CredentialsRefusedError):
        read(file.source)


# --- reading ----------------------------------------------------------------------------------

CONTENT = np.random.default_rng(1).bytes(READ_AHEAD_NBYTES + 5_000)


@pytest.fixture
def source(root):
    """One object, somewhat larger than what is read ahead."""
    return put_source(root, CONTENT)


@pytest.fixture
def requests(monkeypatch):
    """Ranges that are asked for, in order."""
    asked = []
    whole = S3Objects.get_range_of

    def counted(self, key, version, start, stop):
        asked.append((start, stop))
        return whole(self, key, version, start, stop)

    monkeypatch.setattr(S3Objects, "get_range_of", counted)
    return asked


def put_source(root, content):
    upload(root, {"org/name/model.bin": content})
    (file,) = list_hub(root).files
    return file.source


def test_ranges_of_an_object(source):
    size = len(CONTENT)
    edge = READ_AHEAD_NBYTES
    with open_source(source) as reader:
        assert reader.file == source
        for start, stop in [(edge - 9, edge + 9), (0, size), (0, 8), (8, 900), (edge - 9, edge)]:
            assert reader.read(start, stop).tobytes() == CONTENT[start:stop]
        for start, stop in [(0, 0), (7, 7), (size, size)]:
            assert reader.read(start, stop).size == 0
        for start, stop in [(-1, 4), (4, 3), (0, size + 1)]:
            with pytest.raises(RangeError, match=rf"found \[{start}, {stop}\)"):
                reader.read(start, stop)


def test_a_small_object_and_a_small_header_are_one_request(root, requests):
    content = save({"w": np.arange(10, dtype=np.float32)})
    source = put_source(root, content)
    with open_source(source) as reader:
        (entry,) = SafetensorsFormat().entries(reader)
        for start, stop in [(0, entry.start), (entry.start, entry.stop)]:
            assert reader.read(start, stop).tobytes() == content[start:stop]
        reader.check_unchanged()
    assert requests == [(0, len(content))]


def test_a_tensor_in_the_middle_is_one_request_of_its_size(source, requests):
    location = HubLocation(source, 1_000, 50)
    assert location.read().tobytes() == CONTENT[1_000:1_050]
    assert requests == [(1_000, 1_050)]


@pytest.mark.parametrize("content", [b"other" * 60_000, b"short", b""])
def test_a_changed_object_is_noticed_at_once(root, source, content):
    with open_source(source) as reader:
        reader.read(0, 8)
        upload(root, {"org/name/model.bin": content})
        with pytest.raises(SourceChangedError, match=f"{source.tag}, found another version"):
            reader.read(READ_AHEAD_NBYTES, source.size)
    with pytest.raises(SourceChangedError) as caught, open_source(source) as reader:
        reader.read(0, 8)
    assert caught.value.source == source.source


def test_a_changed_empty_object_is_noticed(root):
    source = put_source(root, b"")
    assert read(source) == b""
    upload(root, {"org/name/model.bin": b"more"})
    with open_source(source) as reader, pytest.raises(SourceChangedError):
        reader.check_unchanged()


def test_a_deleted_object_is_unreadable(root, source):
    open_objects(root).delete("org/name/model.bin")
    with open_source(source) as reader:
        with pytest.raises(SourceUnreadableError, match="found none") as caught:
            reader.read(0, 8)
        assert caught.value.source == source.source
        with pytest.raises(SourceUnreadableError):
            reader.check_unchanged()


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (AccessDeniedError("no"), SourceUnreadableError),
        (ObjectStoreUnavailableError("gone"), ObjectStoreUnavailableError),
    ],
)
def test_a_refusal_is_of_the_file_and_an_outage_is_not(raised, expected, monkeypatch, s3):
    def fail(*args):
        raise raised

    monkeypatch.setattr(S3Objects, "get_range_of", fail)
    with pytest.raises(expected) as caught:
        read(SourceFile("s3://tests/hub/x", 3, "3:abc"))
    assert type(caught.value) is expected
