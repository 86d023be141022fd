"""Listing a hub: layouts, links, and that nothing is lost without a reject."""

import os
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tstore.errors import HubLayoutError, HubNotFoundError
from tstore.hub import walk as walk_module
from tstore.hub.layouts import detect_layout
from tstore.hub.reader import stat_source
from tstore.hub.snapshot import list_hub

COMMIT = "0123456789abcdef0123456789abcdef01234567"
OTHER = "f" * 40


def write(path, content="x"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


def names(snapshot):
    return [(file.repo, file.revision, file.path) for file in snapshot.files]


def reasons(snapshot):
    return [(r.repo, r.path, r.reason) for r in snapshot.rejects]


@pytest.fixture
def hub(tmp_path):
    """A directory hub with one repository, org/name."""
    write(tmp_path / "hub/org/name/config.json")
    return tmp_path / "hub"


@pytest.fixture
def cache(tmp_path):
    """A Hugging Face cache as its own client writes it."""
    entry = tmp_path / "huggingface/hub/models--org--name"
    blob = write(entry / "blobs/abc", "weights")
    snapshot = entry / f"snapshots/{COMMIT}"
    snapshot.mkdir(parents=True)
    (snapshot / "model.safetensors").symlink_to("../../blobs/abc")
    write(entry / "refs/main", COMMIT)
    write(entry / "refs/pr/1", COMMIT + "\n")
    write(entry / f".no_exist/{COMMIT}/adapter.json")
    write(entry.parent / ".locks/models--org--name/abc.lock")
    assert blob.exists()
    return entry.parent


# --- directory hubs ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "marker", ["m.safetensors", "m.bin", "m.gguf", "m.pt", "m.pth", "config.json"]
)
def test_a_root_with_a_model_file_is_one_repository(tmp_path, marker):
    write(tmp_path / "llama" / marker)
    write(tmp_path / "llama/sub/dir/x.txt")
    snapshot = list_hub(str(tmp_path / "llama"))
    assert names(snapshot) == [("llama", "main", marker), ("llama", "main", "sub/dir/x.txt")]
    assert snapshot.refs == {("llama", "main"): ("main",)}
    assert snapshot.rejects == ()
    assert snapshot.root == os.path.realpath(tmp_path / "llama")
    assert snapshot.files[0].source == stat_source(tmp_path / "llama" / marker)


def test_a_linked_single_repository_has_the_name_of_the_link(tmp_path):
    write(tmp_path / "data/config.json")
    (tmp_path / "llama").symlink_to("data")
    assert names(list_hub(str(tmp_path / "llama"))) == [("llama", "main", "config.json")]
    assert names(list_hub(f"{tmp_path}/llama/")) == [("llama", "main", "config.json")]


def test_a_directory_hub_has_repositories_on_two_levels(tmp_path):
    for path in [
        "solo/model.safetensors",
        "solo/onnx/x",
        "org/a/config.json",
        "org/b/deep/er/x",
        "org/loose.txt",
        "top.txt",
    ]:
        write(tmp_path / path)
    (tmp_path / "empty/dir").mkdir(parents=True)
    snapshot = list_hub(str(tmp_path))
    assert names(snapshot) == [
        ("@hub", "main", "top.txt"),
        ("org", "main", "loose.txt"),
        ("org/a", "main", "config.json"),
        ("org/b", "main", "deep/er/x"),
        ("solo", "main", "model.safetensors"),
        ("solo", "main", "onnx/x"),
    ]
    assert set(snapshot.refs.values()) == {("main",)}
    assert list(snapshot.refs) == sorted({(file.repo, "main") for file in snapshot.files})


def test_tool_directories_at_the_top_of_a_repository_are_skipped_and_junk_is_not(tmp_path):
    kept = [
        "org/a/config.json",
        "org/a/.DS_Store",
        "org/a/.gitattributes",
        "org/a/sub/.git/HEAD",
        "org/a/sub/.cache/x",
        "org/a/x.tmp~",
        "org/b/.git",
        "solo/config.json",
        "solo/x/.git/HEAD",
    ]
    skipped = [
        ".git/config.json",
        ".git/objects/a",
        ".cache/x/y/z",
        "org/.git/HEAD",
        "org/a/.git/HEAD",
        "org/a/.cache/huggingface/download/x.metadata",
        "solo/.git/objects/aa/bb",
    ]
    for path in kept + skipped:
        write(tmp_path / path)
    snapshot = list_hub(str(tmp_path))
    assert sorted(f"{f.repo}/{f.path}" for f in snapshot.files) == sorted(kept)
    assert snapshot.rejects == ()


def test_tool_directories_of_a_single_repository(tmp_path):
    root = tmp_path / ".cache"
    for path in ["config.json", ".git/HEAD", "sub/.git/HEAD"]:
        write(root / path)
    assert names(list_hub(str(root))) == [
        (".cache", "main", "config.json"),
        (".cache", "main", "sub/.git/HEAD"),
    ]


def test_an_empty_hub_is_empty(tmp_path):
    snapshot = list_hub(str(tmp_path))
    assert (snapshot.files, snapshot.refs, snapshot.rejects) == ((), {}, ())


def test_a_missing_root(tmp_path):
    with pytest.raises(HubNotFoundError, match=r"hub directory at .*gone', found: No such file"):
        list_hub(str(tmp_path / "gone"))
    with pytest.raises(HubNotFoundError, match="Not a directory"):
        list_hub(str(write(tmp_path / "file")))


def test_two_files_of_one_name(tmp_path):
    write(tmp_path / "x.txt")
    write(tmp_path / "@hub/config.json")
    write(tmp_path / "@hub/x.txt")
    with pytest.raises(HubLayoutError, match=r"one file 'x.txt' in @hub@main, found two: .*x.txt"):
        list_hub(str(tmp_path))


def test_files_that_the_layout_puts_below_another_are_rejects(tmp_path):
    for path in ["x", "@hub/config.json", "@hub/y/z", "y", "z/config.json"]:
        write(tmp_path / path)
    snapshot = list_hub(str(tmp_path))
    assert [(file.repo, file.path) for file in snapshot.files] == [
        ("@hub", "config.json"),
        ("@hub", "x"),
        ("@hub", "y"),
        ("z", "config.json"),
    ]
    assert reasons(snapshot) == [("@hub", "y/z", "PathConflictError")]


# --- the Hugging Face cache -------------------------------------------------------------------


def test_a_cache_has_commits_as_revisions_and_refs(cache):
    snapshot = list_hub(str(cache))
    assert names(snapshot) == [("org/name", COMMIT, "model.safetensors")]
    assert snapshot.refs == {("org/name", COMMIT): ("main", "pr/1")}
    assert snapshot.rejects == ()
    assert snapshot.files[0].source.source == os.path.realpath(
        cache / "models--org--name/blobs/abc"
    )


def test_the_directory_above_a_cache_is_the_same_cache(cache):
    write(cache.parent / "token", "secret")
    write(cache.parent / "xet/chunk")
    assert list_hub(str(cache.parent)) == list_hub(str(cache))


def test_a_hub_directory_without_cache_is_an_org(tmp_path):
    write(tmp_path / "hub/name/config.json")
    assert names(list_hub(str(tmp_path))) == [("hub/name", "main", "config.json")]


def test_kinds_and_names_of_cache_directories(tmp_path):
    for entry in ["models--gpt2", "datasets--org--text", "spaces--org--demo"]:
        write(tmp_path / entry / "snapshots" / COMMIT / "sub/x")
    snapshot = list_hub(str(tmp_path))
    assert names(snapshot) == [
        ("datasets/org/text", COMMIT, "sub/x"),
        ("gpt2", COMMIT, "sub/x"),
        ("spaces/org/demo", COMMIT, "sub/x"),
    ]
    assert set(snapshot.refs.values()) == {()}


def test_revisions_share_files_and_refs_to_absent_ones_are_left_out(cache):
    entry = cache / "models--org--name"
    (entry / f"snapshots/{OTHER}").mkdir()
    (entry / f"snapshots/{OTHER}/model.safetensors").symlink_to("../../blobs/abc")
    write(entry / f"snapshots/{OTHER}/.git/HEAD")
    write(entry / "refs/gone", "a" * 40)
    write(entry / "refs/v1", OTHER)
    snapshot = list_hub(str(cache))
    assert names(snapshot) == [
        ("org/name", COMMIT, "model.safetensors"),
        ("org/name", OTHER, "model.safetensors"),
    ]
    assert snapshot.files[0].source == snapshot.files[1].source
    assert snapshot.refs == {
        ("org/name", COMMIT): ("main", "pr/1"),
        ("org/name", OTHER): ("v1",),
    }


def test_a_cache_entry_without_snapshots_is_bookkeeping(cache):
    write(cache / f"models--only--probed/.no_exist/{COMMIT}/x")
    write(cache / "models--half--loaded/blobs/abc.incomplete")
    snapshot = list_hub(str(cache))
    assert {file.repo for file in snapshot.files} == {"org/name"}
    assert snapshot.rejects == ()


def test_strangers_in_a_cache_are_listed_too(cache):
    write(cache / "version.txt")
    write(cache / "mine/config.json")
    write(cache / "models--no--cache/model.bin")
    write(cache / "models--org--name/stray.txt")
    write(cache / "models--org--name/snapshots/stray")
    snapshot = list_hub(str(cache))
    assert names(snapshot) == [
        ("@hub", "main", "version.txt"),
        ("mine", "main", "config.json"),
        ("models--no--cache", "main", "model.bin"),
        ("org/name", COMMIT, "model.safetensors"),
    ]
    assert snapshot.refs["mine", "main"] == ("main",)
    assert reasons(snapshot) == [
        ("org/name", "snapshots/stray", "HubLayoutError"),
        ("org/name", "stray.txt", "HubLayoutError"),
    ]
    assert "expected snapshots/<commit>/<file>" in snapshot.rejects[1].message
    assert (snapshot.rejects[1].revision, snapshot.rejects[1].size) == ("", 1)


def test_a_model_file_beside_cache_directories_does_not_hide_them(cache):
    write(cache / "config.json")
    assert names(list_hub(str(cache))) == [
        ("@hub", "main", "config.json"),
        ("org/name", COMMIT, "model.safetensors"),
    ]


def test_refs_that_cannot_be_read_are_rejects(cache):
    refs = cache / "models--org--name/refs"
    write(refs / "empty", "")
    write(refs / "long", "a" * 10_000)
    write(refs / "odd", "ref: x")
    (refs / "broken").symlink_to("nothing")
    os.mkfifo(refs / "pipe")
    write(refs / os.fsdecode(b"b\xff"), COMMIT)
    snapshot = list_hub(str(cache))
    assert snapshot.refs["org/name", COMMIT] == ("main", "pr/1")
    assert reasons(snapshot) == [
        ("org/name", "refs/b\\xff", "UndecodableNameError"),
        ("org/name", "refs/broken", "BrokenSymlinkError"),
        ("org/name", "refs/empty", "HubLayoutError"),
        ("org/name", "refs/odd", "HubLayoutError"),
        ("org/name", "refs/pipe", "NotRegularFileError"),
    ]
    assert "expected a commit in ref 'odd', found b'ref: x'" in snapshot.rejects[3].message


# --- links ------------------------------------------------------------------------------------


def test_links_inside_the_hub_are_followed(hub):
    write(hub / "common/tokenizer/vocab.txt")
    repo = hub / "org/name"
    (repo / "tokenizer").symlink_to("../../common/tokenizer")
    (repo / "vocab").symlink_to(hub / "common/tokenizer/vocab.txt")
    (hub / "org/alias").symlink_to("name")
    snapshot = list_hub(str(hub))
    vocab = stat_source(hub / "common/tokenizer/vocab.txt")
    assert {(f.repo, f.path) for f in snapshot.files if f.source == vocab} == {
        ("org/name", "tokenizer/vocab.txt"),
        ("org/name", "vocab"),
        ("org/alias", "tokenizer/vocab.txt"),
        ("org/alias", "vocab"),
        ("common/tokenizer", "vocab.txt"),
    }
    assert snapshot.rejects == ()


def test_links_out_of_the_hub_are_rejects(hub, tmp_path):
    write(tmp_path / "hub-secret/key")
    repo = hub / "org/name"
    (repo / "file").symlink_to("../../../hub-secret/key")
    (repo / "dir").symlink_to(tmp_path / "hub-secret")
    (repo / "twice").symlink_to("dir/key")
    (hub / "repo").symlink_to(tmp_path / "hub-secret")
    snapshot = list_hub(str(hub))
    assert names(snapshot) == [("org/name", "main", "config.json")]
    assert reasons(snapshot) == [
        ("@hub", "repo", "SymlinkEscapesError"),
        ("org/name", "dir", "SymlinkEscapesError"),
        ("org/name", "file", "SymlinkEscapesError"),
        ("org/name", "twice", "SymlinkEscapesError"),
    ]
    assert f"inside {str(hub)!r}, found a link to" in snapshot.rejects[2].message
    assert snapshot.rejects[2].size == 0


def test_broken_and_circular_links_are_rejects(hub):
    repo = hub / "org/name"
    (repo / "broken").symlink_to("nothing")
    (repo / "through").symlink_to("config.json/x")
    (repo / "self").symlink_to("self")
    (repo / "ping").symlink_to("pong")
    (repo / "pong").symlink_to("ping")
    snapshot = list_hub(str(hub))
    assert names(snapshot) == [("org/name", "main", "config.json")]
    assert reasons(snapshot) == [
        ("org/name", path, "BrokenSymlinkError")
        for path in ["broken", "ping", "pong", "self", "through"]
    ]
    assert "found a link to 'nothing': No such file" in snapshot.rejects[0].message


def test_directory_circles_are_rejects(hub):
    (hub / "org/name/up").symlink_to("..")
    (hub / "org/name/here").symlink_to(".")
    (hub / "root").symlink_to(hub)
    write(hub / "a/x/f")
    write(hub / "b/y/f")
    (hub / "a/x/b").symlink_to("../../b/y")
    (hub / "b/y/a").symlink_to("../../a/x")
    snapshot = list_hub(str(hub))
    assert [f"{f.repo}/{f.path}" for f in snapshot.files] == [
        "a/x/b/f",
        "a/x/f",
        "b/y/a/f",
        "b/y/f",
        "org/name/config.json",
    ]
    assert reasons(snapshot) == [
        (repo, path, "BrokenSymlinkError")
        for repo, path in [
            ("@hub", "root"),
            ("a/x", "b/a"),
            ("b/y", "a/b"),
            ("org/name", "here"),
            ("org/name", "up"),
        ]
    ]
    assert "found a circle" in snapshot.rejects[0].message


def test_a_net_of_links_ends(hub, monkeypatch):
    monkeypatch.setattr(walk_module, "MAX_LINKS_PER_DIRECTORY", 20)
    for i in range(12):
        (hub / f"org/name/d{i}").mkdir()
        for j in range(12):
            (hub / f"org/name/d{i}/to{j}").symlink_to(f"../d{j}")
    snapshot = list_hub(str(hub))
    assert names(snapshot) == [("org/name", "main", "config.json")]
    too_many = [r for r in snapshot.rejects if "expected at most 20 links" in r.message]
    assert too_many
    assert len(snapshot.rejects) <= 12 * (12 + 12 * 20)


def test_many_repositories_may_link_to_one_directory(hub, monkeypatch):
    monkeypatch.setattr(walk_module, "MAX_LINKS_PER_DIRECTORY", 1)
    write(hub / "common/tokenizer/x")
    for i in range(3):
        (hub / f"org/n{i}").mkdir()
        (hub / f"org/n{i}/tokenizer").symlink_to("../../common/tokenizer")
    snapshot = list_hub(str(hub))
    assert len([f for f in snapshot.files if f.path == "tokenizer/x"]) == 3
    assert snapshot.rejects == ()


# --- what is no file, or has no usable name ---------------------------------------------------


def test_pipes_and_sockets_are_rejects(hub, monkeypatch):
    os.mkfifo(hub / "org/name/pipe")
    (hub / "org/name/link").symlink_to("pipe")
    monkeypatch.chdir(hub / "org/name")  # the path of a socket must be short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
    snapshot = list_hub(str(hub))
    assert names(snapshot) == [("org/name", "main", "config.json")]
    assert reasons(snapshot) == [
        ("org/name", path, "NotRegularFileError") for path in ["link", "pipe", "socket"]
    ]
    assert "expected a regular file" in snapshot.rejects[0].message


def test_names_that_are_not_utf8_are_rejects(hub):
    write(hub / "org/name" / os.fsdecode(b"caf\xe9.txt"), "four")
    write(hub / "org/name" / os.fsdecode(b"d\xff") / "x/y")
    write(hub / "org" / os.fsdecode(b"r\xfe") / "x")
    (hub / "org/name/link").symlink_to(os.fsdecode(b"caf\xe9.txt"))
    (hub / "org/name" / os.fsdecode(b"\x80")).symlink_to("nothing")
    snapshot = list_hub(str(hub))
    assert names(snapshot) == [("org/name", "main", "config.json")]
    assert reasons(snapshot) == [
        ("org/name", "\\x80", "BrokenSymlinkError"),
        ("org/name", "caf\\xe9.txt", "UndecodableNameError"),
        ("org/name", "d\\xff/x/y", "UndecodableNameError"),
        ("org/name", "link", "UndecodableNameError"),
        ("org/r\\xfe", "x", "UndecodableNameError"),
    ]
    assert snapshot.rejects[1].size == 4
    for reject in snapshot.rejects:
        assert repr(reject).encode("utf-8")


def test_names_that_could_not_be_restored_are_rejects(hub):
    write(hub / "org/name/a\\b")
    snapshot = list_hub(str(hub))
    assert names(snapshot) == [("org/name", "main", "config.json")]
    assert reasons(snapshot) == [("org/name", "a\\b", "UnsafePathError")]


def refuse(monkeypatch, function, unreadable):
    """Let os.<function> fail for the path `unreadable`; the superuser may read everything."""
    original = getattr(os, function)

    def guarded(path, *args, **options):
        if path == str(unreadable):
            raise PermissionError(13, "Permission denied")
        return original(path, *args, **options)

    monkeypatch.setattr(os, function, guarded)


def test_an_unreadable_directory_is_a_reject(hub, monkeypatch):
    write(hub / "org/name/sub/x")
    refuse(monkeypatch, "scandir", hub / "org/name/sub")
    snapshot = list_hub(str(hub))
    assert names(snapshot) == [("org/name", "main", "config.json")]
    assert reasons(snapshot) == [("org/name", "sub", "SourceUnreadableError")]
    assert "found Permission denied; check its permissions" in snapshot.rejects[0].message
    assert reasons(list_hub(str(hub), include=["*.json"])) == reasons(snapshot)
    assert reasons(list_hub(str(hub), exclude=["org/name/sub"])) == []


def test_an_unreadable_file_is_a_reject(hub, monkeypatch):
    path = write(hub / "org/name/x")
    refuse(monkeypatch, "stat", path)
    assert reasons(list_hub(str(hub))) == [("org/name", "x", "SourceUnreadableError")]


def test_an_unreadable_root_is_not_an_empty_hub(hub, monkeypatch):
    refuse(monkeypatch, "scandir", hub)
    with pytest.raises(HubNotFoundError, match="Permission denied"):
        list_hub(str(hub))


# --- selection --------------------------------------------------------------------------------


@pytest.fixture
def selectable(hub):
    for path in ["org/name/m.safetensors", "org/name/sub/README.md", "org/other/m.safetensors"]:
        write(hub / path)
    (hub / "org/other/broken").symlink_to("nothing")
    return str(hub)


@pytest.mark.parametrize(
    ("include", "exclude", "expected"),
    [
        (["*.safetensors"], [], ["org/name/m.safetensors", "org/other/m.safetensors"]),
        (["org/other"], [], ["org/other/m.safetensors"]),
        (["*/other/*"], [], ["org/other/m.safetensors"]),
        (["org/name/sub/*", "*.json"], [], ["org/name/config.json", "org/name/sub/README.md"]),
        (["org/*"], ["org/name"], ["org/other/m.safetensors"]),
        (["*.safetensors"], ["*.safetensors"], []),
        ([], ["*.md", "*/other*"], ["org/name/config.json", "org/name/m.safetensors"]),
        (["*.SAFETENSORS"], [], []),
        (["name/*"], [], []),
    ],
)
def test_include_and_exclude(selectable, include, exclude, expected):
    snapshot = list_hub(selectable, include=include, exclude=exclude)
    assert [f"{f.repo}/{f.path}" for f in snapshot.files] == expected
    assert {repo for repo, _ in snapshot.refs} == {f.repo for f in snapshot.files}


@pytest.mark.parametrize(
    ("include", "exclude", "n_rejects"),
    [([], [], 1), (["org/other"], [], 1), (["*.safetensors"], [], 0), ([], ["*/broken"], 0)],
)
def test_rejected_files_are_selected_as_well(selectable, include, exclude, n_rejects):
    assert len(list_hub(selectable, include=include, exclude=exclude).rejects) == n_rejects


# --- nothing is lost --------------------------------------------------------------------------

NAMES = st.sampled_from(
    ["a", "b", "config.json", "m.bin", "snapshots", "blobs", "refs", "models--o--n", "c" * 40]
)
# Objects may have names that are also those of directories.
PATHS = st.sets(st.lists(NAMES, min_size=1, max_size=5).map("/".join), max_size=12)


@given(paths=PATHS)
def test_every_path_has_its_own_place_unless_it_is_bookkeeping(paths):
    layout = detect_layout("root", paths)
    for path in paths:
        place = layout.place(path)
        if place is None:
            assert path.startswith(("models--o--n/blobs/", "models--o--n/refs/"))
        elif layout.single_repo is not None:
            assert (place.repo, place.revision, place.path) == ("root", "main", path)
        elif "/" in path and path.split("/")[0] in layout.cache_repos:
            prefix = "" if place.revision is None else f"snapshots/{place.revision}/"
            assert (place.repo, f"models--o--n/{prefix}{place.path}") == ("o/n", path)
        else:
            assert f"{place.repo}/{place.path}" == (path if "/" in path else f"@hub/{path}")
            assert place.repo.count("/") <= 1
        assert (layout.ref(path) is not None) == (
            path.startswith("models--o--n/refs/") and not layout.single_repo
        )
