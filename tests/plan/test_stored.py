"""Stored bases come group by group, each once, and only those that may serve."""

import pytest

from support.hubs import write_small_hub
from support.inline import ingest_inline
from support.stores import committed_rows, pack_file
from tstore.catalog import open_store
from tstore.plan import stored
from tstore.plan.stored import StoredGroups

SHAPE = ("BF16", (128, 96))


def groups_of(store, wanted):
    catalog = open_store(str(store)).catalog()
    with catalog.connect(lost_packs=catalog.lost_packs()) as connection:
        return {key: group.ids for key, group in StoredGroups(connection, wanted).items()}


def whole(store):
    rows = committed_rows(store)
    blobs = {blob["tensor_id"]: blob["base_id"] for blob in rows["blobs"].to_pylist()}
    sketched = [f["tensor_id"] for f in rows["fingerprints"].to_pylist() if f["sketch"]]
    return sorted({name for name in sketched if blobs[name] is None})


def test_only_what_is_stored_whole_is_there(small_store):
    expected = whole(small_store)
    assert 0 < len(expected) < 24
    assert groups_of(small_store, [SHAPE]) == {SHAPE: tuple(expected)}


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ([], set()),
        ([("F16", (128, 96))], set()),
        ([("BF16", (128, 97))], set()),
        ([("BF16", (130, 96))], {SHAPE}),  # more rows of the same kind
    ],
)
def test_only_kin_of_what_is_wanted_is_there(small_store, wanted, found):
    assert groups_of(small_store, wanted).keys() == found


def test_a_tensor_that_was_stored_twice_is_there_once(tmp_path):
    hub, store = write_small_hub(tmp_path / "hub"), tmp_path / "store"
    ingest_inline(hub, store)
    before = groups_of(store, [SHAPE])
    pack_file(store).unlink()
    assert groups_of(store, [SHAPE]) == {}
    ingest_inline(hub, store)
    after = groups_of(store, [SHAPE])
    assert sorted(after[SHAPE]) == sorted(before[SHAPE])


def test_batches_hold_whole_groups(monkeypatch):
    monkeypatch.setattr(stored, "BATCH", 10)
    counts = {("F32", (n,)): size for n, size in enumerate([4, 6, 1, 25, 3, 7, 1])}
    found = [[counts[key] for key in batch] for batch in stored._batches(counts, counts)]
    assert found == [[4, 6], [1], [25], [3, 7], [1]]
