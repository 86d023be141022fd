"""Unfinished runs: who goes on with them, and what is thrown away."""

import pyarrow as pa
import pytest

from tstore.catalog import RunMarker, keys
from tstore.catalog.catalog import commit, write_tables
from tstore.catalog.runs import new_run_id
from tstore.catalog.schema import BLOBS, FAILURES, REJECTS, SOURCES
from tstore.catalog.workspace import (
    clear_committed,
    open_workspace,
    remove_uncommitted,
    shard_key,
)
from tstore.objects import open_objects

INTENT = {"kind": "ingest", "hub": "/hub"}
OTHER = {"kind": "ingest", "hub": "/other"}
FAILURE = {"tensor_id": "t", "source": "s", "reason": "r", "message": "m"}
ROWS = {
    "failures": pa.Table.from_pylist([FAILURE], FAILURES),
    "blobs": BLOBS.empty_table(),
}
READY = {"blobs": BLOBS.empty_table()}


@pytest.fixture
def objects(tmp_path):
    return open_objects(str(tmp_path / "store"))


def commit_run(objects, run_id, workspace=""):
    commit(objects, RunMarker(run_id, "ingest", "1", {}, {}, {}, workspace))


def staged(objects):
    return [info.key for info in objects.list(keys.STAGING)]


def test_a_shard_key_depends_on_all_of_its_input_and_on_nothing_else():
    content = {"b": [1, "x", None, [0.5, True]], "a": "é"}
    assert shard_key(content) == shard_key(dict(reversed(content.items())))
    others = [{**content, "a": "e"}, {**content, "b": [1, "x", None, [0.5, False]]}, [content]]
    assert len({shard_key(other) for other in [content, *others]}) == 4


def test_rows_of_finished_shards(objects):
    workspace, _ = open_workspace(objects, INTENT)
    assert workspace.finished("encode") == {}
    workspace.write_shard("encode", "k1", READY, {"seconds": 1.5})
    workspace.write_shard("encode", "k2", READY, {"seconds": 2.5})
    workspace.write_shard("encode", "k2", READY, {"seconds": 3.5})
    workspace.write_shard("encode-2", "k3", READY, {})
    assert workspace.finished("encode") == {"k1": {"seconds": 1.5}, "k2": {"seconds": 3.5}}
    assert workspace.rows("encode", "blobs", ["k2", "k1"]).to_table().num_rows == 0
    assert workspace.rows("encode", "blobs", []).to_table().num_rows == 0


def test_a_shard_that_died_before_its_last_write_is_not_finished(objects):
    workspace, _ = open_workspace(objects, INTENT)
    workspace.write_shard("scan", "k", READY, {})
    objects.delete(keys.shard_done(workspace.key, "scan", "k"))
    assert workspace.finished("scan") == {}


def test_the_same_intent_resumes(objects):
    first, resumed = open_workspace(objects, INTENT)
    assert not resumed
    first.write_shard("scan", "k", READY, {})
    again, resumed = open_workspace(objects, dict(reversed(INTENT.items())))
    assert resumed
    assert again == first
    assert again.finished("scan") == {"k": {}}


def test_another_intent_does_not(objects):
    first, _ = open_workspace(objects, INTENT)
    first.write_shard("scan", "k", READY, {})
    other, resumed = open_workspace(objects, OTHER)
    assert not resumed
    assert other.key != first.key
    assert other.finished("scan") == {}


def test_a_run_gets_an_id_after_all_committed_ones_and_no_two_the_same():
    last = "29990101T000000.000000Z-ffff"
    assert min(new_run_id(last) for _ in range(20)) > last
    assert len({new_run_id(last) for _ in range(20)}) > 15


def test_after_a_newer_commit_the_work_goes_on(objects):
    first, _ = open_workspace(objects, INTENT)
    first.write_shard("scan", "k", READY, {})
    commit_run(objects, new_run_id(None), "another workspace")
    clear_committed(objects)
    again, resumed = open_workspace(objects, INTENT)
    assert (again, resumed) == (first, True)
    assert again.finished("scan") == {"k": {}}


def test_only_old_parts_of_runs_that_never_were_committed_are_removed(objects):
    old, young, kept = "20200101T000000.000000Z-aaaa", new_run_id(None), new_run_id(None)
    parts = {
        run_id: write_tables(objects, run_id, {"rejects": REJECTS.empty_table()})["rejects"][0].key
        for run_id in (old, young, kept)
    }
    commit_run(objects, kept)
    remove_uncommitted(objects, 3600)
    assert {i.key for i in objects.list("catalog/rejects/")} == {parts[young], parts[kept]}
    remove_uncommitted(objects, -1)
    assert {i.key for i in objects.list("catalog/rejects/")} == {parts[kept]}


def test_a_shard_with_failures_is_done_again(objects):
    workspace, _ = open_workspace(objects, INTENT)
    workspace.write_shard("encode", "k", ROWS, {})
    assert workspace.finished("encode") == {}
    assert workspace.rows("encode", "failures", ["k"]).to_table().num_rows == 1
    source = {"source": "s", "sha256": None, "reason": "r", "message": "m", "readable": False}
    workspace.write_shard("scan", "k", {"sources": pa.Table.from_pylist([source], SOURCES)}, {})
    assert workspace.finished("scan") == {}


def test_what_a_job_left_behind_its_commit_is_cleared(objects):
    done, _ = open_workspace(objects, INTENT)
    done.write_shard("scan", "k", READY, {})
    unfinished, _ = open_workspace(objects, OTHER)
    unfinished.write_shard("scan", "k", READY, {})
    commit_run(objects, new_run_id(None), done.token)

    clear_committed(objects)

    assert staged(objects)
    assert all(key.startswith(keys.staging(unfinished.key)) for key in staged(objects))
    again, resumed = open_workspace(objects, INTENT)
    assert not resumed
    assert again.token != done.token


def test_an_interrupted_clearing_is_finished_by_the_next_one(objects, monkeypatch):
    done, _ = open_workspace(objects, INTENT)
    done.write_shard("scan", "k", READY, {})
    commit_run(objects, new_run_id(None), done.token)
    delete, deleted = type(objects).delete, []

    def delete_one(self, key):
        if deleted:
            raise OSError("gone away")
        deleted.append(key)
        delete(self, key)

    with monkeypatch.context() as patch:
        patch.setattr(type(objects), "delete", delete_one)
        with pytest.raises(OSError, match="gone away"):
            clear_committed(objects)
    assert staged(objects)
    clear_committed(objects)
    assert staged(objects) == []


def test_clear_removes_everything(objects):
    workspace, _ = open_workspace(objects, INTENT)
    workspace.write_shard("scan", "k", READY, {})
    workspace.clear()
    assert staged(objects) == []
