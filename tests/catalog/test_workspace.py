"""Unfinished runs: who goes on with them, and what is thrown away."""

import pyarrow as pa
import pytest

from tstore.catalog import RunMarker, keys
from tstore.catalog.catalog import commit, write_tables
from tstore.catalog.schema import BLOBS, FAILURES, REJECTS
from tstore.catalog.workspace import clear_committed, open_workspace, shard_key
from tstore.objects import open_objects

INTENT = {"kind": "ingest", "hub": "/hub"}
OTHER = {"kind": "ingest", "hub": "/other"}
FAILURE = {"tensor_id": "t", "source": "s", "reason": "r", "message": "m"}
ROWS = {
    "failures": pa.Table.from_pylist([FAILURE], FAILURES),
    "blobs": BLOBS.empty_table(),
}


@pytest.fixture
def objects(tmp_path):
    return open_objects(str(tmp_path / "store"))


def commit_run(objects, run_id):
    commit(objects, RunMarker(run_id, "ingest", "1", {}, {}, {}))


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
    workspace.write_shard("encode", "k1", ROWS, {"seconds": 1.5})
    workspace.write_shard("encode", "k2", ROWS, {"seconds": 2.5})
    workspace.write_shard("encode", "k2", ROWS, {"seconds": 3.5})
    workspace.write_shard("encode-2", "k3", ROWS, {})
    assert workspace.finished("encode") == {"k1": {"seconds": 1.5}, "k2": {"seconds": 3.5}}
    rows = workspace.rows("encode", "failures", ["k2", "k1"]).to_table()
    assert rows["tensor_id"].to_pylist() == ["t", "t"]
    assert workspace.rows("encode", "blobs", []).to_table().num_rows == 0


def test_a_shard_that_died_before_its_last_write_is_not_finished(objects):
    workspace, _ = open_workspace(objects, INTENT)
    workspace.write_shard("scan", "k", ROWS, {})
    objects.delete(keys.shard_done(workspace.key, "scan", "k"))
    assert workspace.finished("scan") == {}


def test_the_same_intent_resumes(objects):
    first, resumed = open_workspace(objects, INTENT)
    assert not resumed
    first.write_shard("scan", "k", ROWS, {})
    again, resumed = open_workspace(objects, dict(reversed(INTENT.items())))
    assert resumed
    assert again == first
    assert again.finished("scan") == {"k": {}}


def test_another_intent_does_not(objects):
    first, _ = open_workspace(objects, INTENT)
    first.write_shard("scan", "k", ROWS, {})
    other, resumed = open_workspace(objects, OTHER)
    assert not resumed
    assert other.key != first.key
    assert other.finished("scan") == {}


def test_a_run_gets_an_id_after_all_committed_ones(objects):
    last = "29990101T000000.000000Z"
    commit_run(objects, "20200101T000000.000000Z")
    commit_run(objects, last)
    assert open_workspace(objects, INTENT)[0].run_id > last


def test_after_a_newer_commit_the_work_goes_on_under_a_new_run_id(objects):
    first, _ = open_workspace(objects, INTENT)
    first.write_shard("scan", "k", ROWS, {})
    write_tables(objects, first.run_id, {"rejects": REJECTS.empty_table()})
    other, _ = open_workspace(objects, OTHER)
    kept = write_tables(objects, other.run_id, {"rejects": REJECTS.empty_table()})["rejects"]
    commit_run(objects, other.run_id)

    again, resumed = open_workspace(objects, INTENT)

    assert resumed
    assert again.run_id > other.run_id
    assert again.finished("scan") == {"k": {}}
    assert [i.key for i in objects.list("catalog/rejects/")] == [part.key for part in kept]
    assert open_workspace(objects, INTENT) == (again, True), "the new id was written down"


def test_what_a_job_left_behind_its_commit_is_cleared(objects):
    done, _ = open_workspace(objects, INTENT)
    done.write_shard("scan", "k", ROWS, {})
    unfinished, _ = open_workspace(objects, OTHER)
    unfinished.write_shard("scan", "k", ROWS, {})
    commit_run(objects, done.run_id)

    clear_committed(objects)

    assert staged(objects)
    assert all(key.startswith(keys.staging(unfinished.key)) for key in staged(objects))
    again, resumed = open_workspace(objects, INTENT)
    assert not resumed
    assert again.run_id > done.run_id


def test_an_interrupted_clearing_is_finished_by_the_next_one(objects, monkeypatch):
    done, _ = open_workspace(objects, INTENT)
    done.write_shard("scan", "k", ROWS, {})
    commit_run(objects, done.run_id)
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
    workspace.write_shard("scan", "k", ROWS, {})
    workspace.clear()
    assert staged(objects) == []
