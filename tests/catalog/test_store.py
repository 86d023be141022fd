"""``store.json``: made once, and refused when it is not ours."""

import json

import pytest

from support.races import in_threads
from tstore.catalog import keys, open_store
from tstore.catalog.store import FORMAT_VERSION, open_or_create
from tstore.errors import (
    ConditionalPutUnsupportedError,
    StoreFormatError,
    StoreNotFoundError,
)
from tstore.objects import PROBE_PREFIX, open_objects
from tstore.objects.local import LocalObjects
from tstore.settings import SketchSettings

SKETCH = SketchSettings(depth=3, width=64, seed=5, min_nbytes=100)


def write(folder, name, content):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())


def test_sketch_parameters_are_those_of_the_first_time(tmp_path):
    uri = str(tmp_path / "new" / "store")
    assert open_or_create(uri, SKETCH).sketch == SKETCH
    assert open_or_create(uri, SketchSettings()).sketch == SKETCH
    assert open_store(uri).sketch == SKETCH


def test_of_two_creators_both_get_the_parameters_of_one(tmp_path):
    def create(seed):
        return open_or_create(str(tmp_path), SketchSettings(seed=seed)).sketch

    assert set(in_threads(4, create)) == {open_store(str(tmp_path)).sketch}


def test_an_empty_directory_becomes_a_store(tmp_path):
    (tmp_path / "empty").mkdir()
    open_or_create(str(tmp_path), SKETCH)
    assert json.loads((tmp_path / keys.STORE).read_bytes())["format_version"] == FORMAT_VERSION


@pytest.mark.parametrize("name", ["notes.txt", "a/b/model.safetensors", "catalog/runs/x.json"])
def test_a_foreign_directory_is_refused_and_left_alone(tmp_path, name):
    write(tmp_path, name, b"x")
    with pytest.raises(StoreFormatError, match=f"found {name}; choose an empty directory"):
        open_or_create(str(tmp_path), SKETCH)
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == [tmp_path / name]


@pytest.mark.parametrize("open_it", [open_store, lambda uri: open_or_create(uri, SKETCH)])
@pytest.mark.parametrize("version", [FORMAT_VERSION + 1, 0, "1", None])
def test_another_format_is_refused(tmp_path, version, open_it):
    write(tmp_path, keys.STORE, {"format_version": version, "tool_version": "9.8", "sketch": {}})
    with pytest.raises(
        StoreFormatError, match=rf"found {version} at .* use tstore 9\.8, which made it"
    ):
        open_it(str(tmp_path))


@pytest.mark.parametrize("open_it", [open_store, lambda uri: open_or_create(uri, SKETCH)])
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        [],
        7,
        {},
        {"format_version": FORMAT_VERSION},
        {"format_version": FORMAT_VERSION, "sketch": {"radius": 2}},
        {"format_version": FORMAT_VERSION, "sketch": 3},
        {"format_version": FORMAT_VERSION, "sketch": {"width": 100}},
        {"format_version": FORMAT_VERSION, "sketch": {"depth": 0}},
    ],
)
def test_garbage_is_refused(tmp_path, content, open_it):
    write(tmp_path, keys.STORE, content)
    with pytest.raises(StoreFormatError, match=r"expected the store\.json of a store"):
        open_it(str(tmp_path))


def test_a_missing_store_is_said_to_be_missing(tmp_path):
    with pytest.raises(StoreNotFoundError, match="ingest a hub to make one"):
        open_store(str(tmp_path / "nowhere"))
    assert not (tmp_path / "nowhere").exists()


def test_a_place_that_cannot_keep_two_jobs_apart_is_refused(tmp_path, monkeypatch):
    def probe(self):
        raise ConditionalPutUnsupportedError("expected conditional puts, found none")

    monkeypatch.setattr(LocalObjects, "probe", probe)
    with pytest.raises(ConditionalPutUnsupportedError):
        open_or_create(str(tmp_path), SKETCH)
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_appears_while_we_look_is_opened(tmp_path, monkeypatch):
    uri, listed = str(tmp_path), LocalObjects.list

    def late(self, prefix):
        monkeypatch.setattr(LocalObjects, "list", listed)
        open_or_create(uri, SKETCH)
        return listed(self, prefix)

    monkeypatch.setattr(LocalObjects, "list", late)
    assert open_or_create(uri, SketchSettings()).sketch == SKETCH


def test_the_probe_of_another_job_is_no_foreign_object(tmp_path):
    write(tmp_path, f"{PROBE_PREFIX}x", b"x")
    assert open_or_create(str(tmp_path), SKETCH).sketch == SKETCH


def test_of_two_creators_in_a_bucket_both_get_the_parameters_of_one(s3):
    uri = s3.uri()
    found = in_threads(4, lambda seed: open_or_create(uri, SketchSettings(seed=seed)).sketch)
    assert set(found) == {open_store(uri).sketch}
    assert [info.key for info in open_objects(uri).list("")] == [keys.STORE]
