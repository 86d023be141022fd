"""``store.json``: made once, and refused when it is not ours."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tstore.catalog import keys, open_store
from tstore.catalog.store import FORMAT_VERSION, open_or_create
from tstore.errors import StoreFormatError, StoreNotFoundError
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
    barrier = threading.Barrier(4)

    def create(seed):
        barrier.wait()
        return open_or_create(str(tmp_path), SketchSettings(seed=seed)).sketch

    with ThreadPoolExecutor(4) as pool:
        found = set(pool.map(create, range(4)))
    assert found == {open_store(str(tmp_path)).sketch}


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
