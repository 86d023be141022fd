"""A file that changes between the scan and the encode stage costs only itself."""

import os
from pathlib import Path

import numpy as np
import pytest

from support.hubs import bf16_weights, drifted, file_hashes, safetensors_bytes, write_small_hub
from support.inline import ingest_inline
from support.stores import restore_all, stored_hashes
from tstore.catalog import open_store
from tstore.encode import stage
from tstore.encode.bases import BaseCache
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


CASES = {
    "a file with the bases, before anything": ("lab/base", WHOLE, 0, grow, True),
    "when all of it had been read": ("lab/base", SMALL, 9, grow, False),
    "a file whose tensors others hold too": ("mirror/base-again", SMALL, 0, os.unlink, True),
    "a file with deltas, replaced while others were read": ("lab/tuned", SMALL, 1, swap, True),
}


@pytest.mark.parametrize(
    ("victim", "tasks", "at_shard", "change", "lost"), CASES.values(), ids=CASES
)
def test_only_that_file_is_rejected(tmp_path, victim, tasks, at_shard, change, lost):
    hub, store = write_small_hub(tmp_path / "hub"), tmp_path / "store"
    before = file_hashes(hub)

    def change_it(stage, number):
        if (stage, number) == ("encode", at_shard):
            change(hub / victim / WEIGHTS)

    report = ingest_inline(hub, store, before_shard=change_it, tasks=tasks)

    assert report.stages["encode"].shards == (10 if tasks is SMALL else 1)
    rejected = [row for row in report.rejects.to_pylist() if not row["stored"]]
    assert [(row["repo"], row["path"]) for row in rejected] == [(victim, WEIGHTS)] * lost
    if lost:
        kind = "SourceUnreadableError" if change is os.unlink else "SourceChangedError"
        assert rejected[0]["reason"] == kind
        del before[f"{victim}/{WEIGHTS}"]
    assert restored(store, tmp_path / "first") == before

    ingest_inline(hub, store)

    assert stored_hashes(store) == file_hashes(hub)
    assert verify(open_store(str(store)), read_data=True).problems == []


def test_deltas_are_never_taken_against_the_base_of_other_deltas(tmp_path, monkeypatch):
    """The file of a base changes after the base was encoded, right before its deltas are.

    Else the second delta would be taken against what the cluster before left in the cache.
    """
    rng = np.random.default_rng(0)
    hub, store = tmp_path / "hub", tmp_path / "store"
    one = bf16_weights(rng, 128, 96)
    two = one ^ rng.integers(0, 16, one.shape).astype(np.uint16)  # near enough to be a base, too
    models = {"a/one": one, "c/two": two}
    models |= {f"b{i}/of-one": drifted(rng, one, 0.02) for i in range(3)}
    models |= {f"d{i}/of-two": drifted(rng, two, 0.02) for i in range(3)}
    for repo, weights in models.items():
        (hub / repo).mkdir(parents=True)
        (hub / repo / WEIGHTS).write_bytes(safetensors_bytes({"w": ("BF16", weights)}))
    encode, bases = stage._encode, []

    def change_second_base(item, *args):
        entry = encode(item, *args)
        if item.base is None and item.dtype == "BF16":
            bases.append(item.target.location.source.source)
            if len(bases) == 2:
                grow(Path(bases[1]))
        return entry

    monkeypatch.setattr(stage, "_encode", change_second_base)
    monkeypatch.setattr(BaseCache, "get", lambda self, base: None)  # as if each had gone out
    ingest_inline(hub, store)

    assert len(bases) >= 2
    assert verify(open_store(str(store)), read_data=True).problems == []
    found = restored(store, tmp_path / "restored")
    expected = file_hashes(hub)
    assert len(found) >= 7
    assert all(expected[name] == digest for name, digest in found.items())


@pytest.mark.parametrize("already_encoded", [False, True])
def test_deltas_of_a_lost_base_are_stored_alone(tmp_path, already_encoded):
    """Nothing else holds the base, and the delta could not be decoded without it."""
    rng = np.random.default_rng(1)
    hub, store = tmp_path / "hub", tmp_path / "store"
    base = bf16_weights(rng, 128, 96)
    for repo, weights in {"a/base": base, "b/tuned": drifted(rng, base)}.items():
        (hub / repo).mkdir(parents=True)
        (hub / repo / WEIGHTS).write_bytes(safetensors_bytes({"w": ("BF16", weights)}))

    def change_it(stage, number):
        if (stage, number) == ("encode", 1 if already_encoded else 0):
            grow(hub / "a/base" / WEIGHTS)

    # One shard for each of: header (both files have it), base, delta. Backwards, the delta is first.
    tasks = TaskSettings(encode_nbytes=1)
    report = ingest_inline(
        hub, store, before_shard=change_it, tasks=tasks, last_first=already_encoded
    )

    assert report.stages["encode"].shards == 3
    assert report.stages["encode-2"].shards == 2, "the header from the other file, and the delta"
    with open_store(str(store)).catalog().connect() as connection:
        rows = connection.sql("SELECT base_id FROM blobs").fetchall()
    assert set(rows) == {(None,)}
    expected = {name: h for name, h in file_hashes(hub).items() if name.startswith("b/")}
    assert restored(store, tmp_path / "restored") == expected
