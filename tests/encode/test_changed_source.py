"""A file that changes between the scan and the encode stage costs only itself."""

import os

import numpy as np
import pytest
from support.hubs import bf16_weights, drifted, file_hashes, safetensors_bytes, write_small_hub
from support.inline import ingest_inline
from support.stores import restore_all, stored_paths

from tstore.catalog import open_store
from tstore.restore.verify import verify
from tstore.settings import KIB, TaskSettings

WHOLE = TaskSettings()
SMALL = TaskSettings(encode_nbytes=64 * KIB)
WEIGHTS = "model.safetensors"


def grow(path):
    with path.open("ab") as file:
        file.write(b"!")


def swap(path):
    """Same size, other bytes, another inode."""
    other = path.with_name("other")
    other.write_bytes(path.read_bytes()[::-1])
    other.rename(path)


def restored(store, destination):
    return file_hashes(restore_all(store, destination))


@pytest.mark.parametrize("change", [grow, swap, os.unlink], ids=["grown", "replaced", "removed"])
@pytest.mark.parametrize(("tasks", "at_shard"), [(WHOLE, 0), (SMALL, 0), (SMALL, 3)])
@pytest.mark.parametrize("victim", ["lab/base", "mirror/base-again", "lab/tuned"])
def test_only_that_file_is_rejected(tmp_path, victim, tasks, at_shard, change):
    if change is not grow and (tasks, at_shard) != (SMALL, 0):
        pytest.skip("one way of cutting is enough for the rarer changes")
    hub, store = write_small_hub(tmp_path / "hub"), tmp_path / "store"
    before = file_hashes(hub)
    bad = hub / victim / WEIGHTS

    def change_it(stage, number):
        if (stage, number) == ("encode", at_shard):
            change(bad)

    report = ingest_inline(hub, store, before_shard=change_it, tasks=tasks)

    rejected = {(r["repo"], r["path"]): r for r in report.rejects.to_pylist() if not r["stored"]}
    expected = {name: digest for name, digest in before.items() if name != f"{victim}/{WEIGHTS}"}
    if not rejected:
        # All that was to be read from the file had been read: it is stored as it was scanned.
        assert at_shard > 0 or victim == "mirror/base-again"
        expected = before
    else:
        assert rejected.keys() == {(victim, WEIGHTS)}
        kind = "SourceUnreadableError" if change is os.unlink else "SourceChangedError"
        assert rejected[victim, WEIGHTS]["reason"] == kind
        assert (victim, WEIGHTS) not in stored_paths(store)
    assert restored(store, tmp_path / "first") == expected
    assert verify(open_store(str(store)), read_data=True).problems == []

    ingest_inline(hub, store)

    assert restored(store, tmp_path / "second") == file_hashes(hub)
    assert verify(open_store(str(store)), read_data=True).problems == []


def test_deltas_of_a_lost_base_are_stored_alone(tmp_path):
    """Nothing else holds the base, and the delta could not be decoded without it."""
    rng = np.random.default_rng(1)
    hub, store = tmp_path / "hub", tmp_path / "store"
    base = bf16_weights(rng, 128, 96)
    for repo, weights in {"a/base": base, "b/tuned": drifted(rng, base)}.items():
        (hub / repo).mkdir(parents=True)
        (hub / repo / WEIGHTS).write_bytes(safetensors_bytes({"w": ("BF16", weights)}))

    def change_it(stage, number):
        if stage == "encode":
            grow(hub / "a/base" / WEIGHTS)

    report = ingest_inline(hub, store, before_shard=change_it)

    assert "encode-2" in report.stages
    assert stored_paths(store) == {("b/tuned", WEIGHTS)}
    with open_store(str(store)).catalog().connect() as connection:
        rows = connection.sql("SELECT base_id FROM blobs").fetchall()
    assert set(rows) == {(None,)}
    expected = {name: h for name, h in file_hashes(hub).items() if name.startswith("b/")}
    assert restored(store, tmp_path / "restored") == expected
