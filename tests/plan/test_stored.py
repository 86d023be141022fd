"""Which stored tensors are there to be bases, and where their fingerprints lie."""

import pytest

from support.hubs import write_small_hub
from support.inline import ingest_inline
from support.stores import committed_rows, pack_file
from tstore.catalog import Catalog, open_store
from tstore.objects import open_objects
from tstore.plan.stored import place_stored
from tstore.settings import SketchSettings

SHAPE = ("BF16", (128, 96))


def groups_of(store, wanted):
    catalog = open_store(str(store)).catalog()
    with catalog.connect(lost_packs=catalog.lost_packs()) as connection:
        placed = place_stored(connection, catalog, wanted, SketchSettings())
    assert placed.digests.keys() == placed.groups.keys()
    groups = placed.parts.read(list(placed.groups.values()))
    return {(group.dtype, group.shape): group.ids for group in groups}


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
    assert groups_of(store, [SHAPE]) == before


def test_an_empty_store_has_none(tmp_path):
    catalog = Catalog(open_objects(str(tmp_path)))
    with catalog.connect() as connection:
        assert not place_stored(connection, catalog, [SHAPE], SketchSettings()).groups
