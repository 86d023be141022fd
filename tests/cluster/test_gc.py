"""Garbage: what goes, and when."""

from __future__ import annotations

from datetime import timedelta

import pytest

from support.hubs import file_hashes
from support.inline import gc_inline, ingest_inline
from support.upkeep import WEEK, check, earlier, later, packs, rm, undelete
from tstore.catalog import keys, open_store
from tstore.catalog import merge as merging
from tstore.catalog.garbage import read_marks
from tstore.errors import DataGivenUpError
from tstore.objects import open_objects
from tstore.restore.files import restore_repo


def test_a_store_without_garbage_is_left_alone(store):
    before = file_hashes(store / "packs"), file_hashes(store / "catalog")
    report = gc_inline(store)
    assert report.run_id is None
    assert report.counts["marked"] == report.counts["sparse"] == 0
    assert report.counts["bytes_live"] > 0.9 * report.counts["bytes_packs"]
    assert (file_hashes(store / "packs"), file_hashes(store / "catalog")) == before


def test_a_dry_run_says_the_same_and_changes_nothing(store):
    rm(store, "other/unrelated")
    before = file_hashes(store)
    said = gc_inline(store, dry_run=True)
    assert file_hashes(store) == before
    done = gc_inline(store)
    assert said.run_id is None
    assert said.counts["due"] > 0
    assert {name: done.counts[name] for name in said.counts} == said.counts


def test_what_a_removed_repository_took_goes_after_the_grace_period(store, small_hub, tmp_path):
    before = packs(store)
    rm(store, "other/unrelated")
    assert gc_inline(store, grace=WEEK).counts["due"] == 0
    marked = set(read_marks(open_objects(str(store))))
    assert marked
    assert before <= packs(store)
    with later(WEEK - timedelta(hours=1)):
        gc_inline(store, grace=WEEK)
    assert marked <= packs(store)
    with later(WEEK + timedelta(hours=1)):
        report = gc_inline(store, grace=WEEK)
    assert report.counts["due"] == len(marked)
    assert not marked & packs(store)
    check(store, small_hub, tmp_path / "out", ("other/unrelated",))
    with pytest.raises(DataGivenUpError, match="ingest the repository again"):
        undelete(store, "other/unrelated")


def test_what_is_removed_again_has_its_grace_period_again(store, small_hub, tmp_path):
    """Its first mark says nothing: it was needed in between."""
    rm(store, "other/unrelated")
    with earlier(WEEK):
        gc_inline(store, grace=WEEK)
    assert read_marks(open_objects(str(store)))
    undelete(store, "other/unrelated")
    rm(store, "other/unrelated")
    with later(WEEK / 2):
        assert gc_inline(store, grace=WEEK).counts["due"] == 0
    undelete(store, "other/unrelated")
    check(store, small_hub, tmp_path / "out")


def test_what_is_needed_again_is_not_removed_however_old_its_mark(store, small_hub, tmp_path):
    rm(store, "other/unrelated")
    gc_inline(store, grace=WEEK)
    assert read_marks(open_objects(str(store)))
    undelete(store, "other/unrelated")
    with later(10 * WEEK):
        assert gc_inline(store, grace=WEEK).counts["due"] == 0
    assert not read_marks(open_objects(str(store)))
    check(store, small_hub, tmp_path / "out")


def test_an_ingest_between_mark_and_deletion_saves_what_it_needs(store, small_hub, tmp_path):
    """It finds the tensors in the catalog and does not store them again."""
    rm(store, "other/unrelated")
    gc_inline(store, grace=WEEK)
    ingest_inline(small_hub, store)
    with later(10 * WEEK):
        gc_inline(store, grace=WEEK)
    check(store, small_hub, tmp_path / "out")


def test_garbled_marks_only_start_the_grace_period_again(store):
    rm(store, "other/unrelated")
    gc_inline(store, grace=WEEK)
    (store / keys.MARKED_PACKS).write_text("[1, 2")
    with later(10 * WEEK):
        assert gc_inline(store, grace=WEEK).counts["due"] == 0
    assert read_marks(open_objects(str(store)))


def test_packs_with_little_of_use_are_compacted(own_store, tmp_path, small_hub):
    gone = ("other/unrelated", "lab/tuned", "mirror/base-again")
    for repo in gone:
        rm(own_store, repo)
    (before,) = packs(own_store)
    report = gc_inline(own_store, compact_below=0.9)
    assert report.counts["sparse"] == 1
    assert report.run_id is not None
    check(own_store, small_hub, tmp_path / "out", gone)
    gc_inline(own_store)
    (after,) = packs(own_store)
    assert after != before
    check(own_store, small_hub, tmp_path / "again", gone)


def test_small_blobs_are_not_copied_again_and_again(tmp_path):
    """Most of their pack is its header."""
    hub, store = tmp_path / "hub", tmp_path / "store"
    for number in range(3):
        (hub / f"lab/m{number}").mkdir(parents=True)
        (hub / f"lab/m{number}/config.json").write_text(f"{number}")
    ingest_inline(hub, store)
    before = packs(store)
    assert gc_inline(store).counts["sparse"] == 0
    rm(store, "lab/m0")
    rm(store, "lab/m1")
    assert gc_inline(store).counts["sparse"] == 1
    gc_inline(store)
    after = packs(store)
    assert len(after) == 1
    assert after != before
    assert gc_inline(store).counts["sparse"] == 0
    check(store, hub, tmp_path / "out", ("lab/m0", "lab/m1"))


def test_a_restore_finds_what_was_moved_and_deleted_under_it(store, small_hub, tmp_path):
    """A gc without any grace period, which copies all there is."""
    rm(store, "other/unrelated")
    seen: list[str] = []

    def collect(file: object) -> None:
        if not seen:
            gc_inline(store, compact_below=1.0)
            gc_inline(store)
        seen.append(str(file))

    before = packs(store)
    restore_repo(open_store(str(store)), "lab/tuned", tmp_path / "out", on_file=collect)
    assert len(seen) == 3
    assert not before & packs(store), "all were copied, and are gone"
    assert file_hashes(tmp_path / "out") == file_hashes(small_hub / "lab/tuned")


def test_merged_parts_of_the_catalog_go_after_the_grace_period(changing, tmp_path, monkeypatch):
    hub, store = changing
    monkeypatch.setattr(merging, "AT_LEAST", 2)
    (hub / "lab/base/new.md").write_text("new")
    ingest_inline(hub, store)
    report = gc_inline(store, grace=WEEK)
    assert report.run_id is not None
    merged = open_store(str(store)).catalog().runs[-1].merged
    assert merged
    assert all((store / key).exists() for key in merged)
    check(store, hub, tmp_path / "between")
    with later(2 * WEEK):
        assert gc_inline(store, grace=WEEK).counts["stale"] == len(merged)
    assert not any((store / key).exists() for key in merged)
    check(store, hub, tmp_path / "out")
