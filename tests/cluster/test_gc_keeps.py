"""Garbage: what must never go."""

from __future__ import annotations

from io import BytesIO

import pyarrow.parquet as pq
import pytest

from support.hubs import file_hashes
from support.inline import gc_inline, ingest_inline, replan_inline
from support.upkeep import (
    SMALL,
    WEEK,
    check,
    interrupted_ingest,
    later,
    packs,
    rm,
    undelete,
    writer,
)
from tstore.catalog import merge as merging
from tstore.catalog import open_store
from tstore.catalog.parquet import to_bytes
from tstore.errors import CatalogDamagedError, LeaseHeldError
from tstore.restore.files import restore_repo
from tstore.restore.verify import verify


def test_the_base_of_a_delta_stays_when_its_repositories_are_removed(store, small_hub, tmp_path):
    rm(store, "lab/base")
    rm(store, "mirror/base-again")
    gc_inline(store, compact_below=1.0)
    gc_inline(store)
    check(store, small_hub, tmp_path / "out", ("lab/base", "mirror/base-again"))


def test_what_an_interrupted_ingest_has_finished_stays(tmp_path, small_hub):
    store = tmp_path / "store"
    interrupted_ingest(small_hub, store, 3, tasks=SMALL)
    finished = packs(store)
    assert len(finished) == 3
    gc_inline(store, grace=WEEK)
    with later(WEEK / 2):
        gc_inline(store, grace=WEEK)
    assert packs(store) == finished
    report = ingest_inline(small_hub, store, tasks=SMALL)
    assert report.stages["encode"].shards_resumed == 3
    check(store, small_hub, tmp_path / "out")


def test_work_that_was_never_finished_goes_in_the_end(tmp_path, small_hub):
    store = tmp_path / "store"
    interrupted_ingest(small_hub, store, 3, tasks=SMALL)
    with later(2 * WEEK):
        gc_inline(store, grace=WEEK)
    with later(4 * WEEK):
        gc_inline(store, grace=WEEK)
    assert packs(store) == set()
    ingest_inline(small_hub, store, tasks=SMALL)
    check(store, small_hub, tmp_path / "out")


def test_a_base_that_an_interrupted_ingest_rests_on_stays(tmp_path, small_hub):
    """Its delta is encoded already; the job will not do it again."""
    store = tmp_path / "store"
    ingest_inline(small_hub, store, include=("lab/base",))
    rest = {"include": ("lab/tuned",), "tasks": SMALL}
    interrupted_ingest(small_hub, store, 2, **rest)
    rm(store, "lab/base")
    gc_inline(store, grace=WEEK)
    with later(WEEK / 2):
        gc_inline(store, grace=WEEK / 4)
    ingest_inline(small_hub, store, **rest)
    assert verify(open_store(str(store)), read_data=True).problems == []
    restore_repo(open_store(str(store)), "lab/tuned", tmp_path / "out")
    assert file_hashes(tmp_path / "out") == file_hashes(small_hub / "lab/tuned")


def test_earlier_states_of_a_repository_stay(changing, tmp_path):
    hub, store = changing
    first = open_store(str(store)).catalog().runs[0].run_id
    before = file_hashes(hub / "lab/base")
    (hub / "lab/base/config.json").write_text('{"other": 1}')
    ingest_inline(hub, store)
    gc_inline(store, compact_below=1.0)
    gc_inline(store)
    restore_repo(open_store(str(store)), "lab/base", tmp_path / "out", revision=f"main@{first}")
    assert file_hashes(tmp_path / "out") == before


def test_gc_waits_for_a_job_that_writes(store):
    with writer(store), pytest.raises(LeaseHeldError, match="held by test"):
        gc_inline(store, wait_s=0.0)


@pytest.mark.parametrize("table", ["files", "blobs", "removals"])
def test_nothing_is_given_up_while_the_catalog_is_damaged(store, small_hub, tmp_path, table):
    """A flipped bit in a footer may hide rows without an error."""
    rm(store, "other/unrelated")
    undelete(store, "other/unrelated")
    before = packs(store)
    part = open_store(str(store)).catalog().parts(table)[-1]
    sound = (store / part.key).read_bytes()
    rows = pq.read_table(BytesIO(sound))
    (store / part.key).write_bytes(to_bytes(rows.slice(0, rows.num_rows // 2)))
    with pytest.raises(CatalogDamagedError, match=part.key):
        gc_inline(store)
    (store / part.key).write_bytes(sound)
    assert packs(store) == before
    check(store, small_hub, tmp_path / "out")


def test_damaged_parts_of_the_catalog_are_not_merged(changing, monkeypatch):
    hub, store = changing
    monkeypatch.setattr(merging, "AT_LEAST", 2)
    (hub / "lab/base/new.md").write_text("new")
    ingest_inline(hub, store)
    part = open_store(str(store)).catalog().parts("plans")[0]
    rows = pq.read_table(store / part.key)
    (store / part.key).write_bytes(to_bytes(rows.slice(0, rows.num_rows // 2)))
    for job in (gc_inline, replan_inline):
        with pytest.raises(CatalogDamagedError, match=part.key):
            job(store)
