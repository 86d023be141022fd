"""Gc that is stopped, stalled or late."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest

from support.hubs import FAMILY_LAYERS, file_hashes, write_family
from support.inline import gc_inline, ingest_inline, replan_inline, verify_inline
from support.upkeep import SMALL, WEEK, check, interrupted_ingest, later, packs, rm
from tstore.catalog import keys, lease, open_store
from tstore.cluster import gc as gc_module
from tstore.cluster import verify as verify_module
from tstore.cluster.gc import GcReport
from tstore.objects import open_objects
from tstore.objects.local import LocalObjects
from tstore.restore import verify as verifying
from tstore.restore.files import restore_repo
from tstore.restore.verify import verify
from tstore.settings import TaskSettings

WRITES = "put", "put_new", "put_if_match", "delete"


@contextmanager
def stopped_at(number: int) -> Iterator[list[str]]:
    """This process dies right before its write of that number; what it did until then."""
    done: list[str] = []

    def counted(name: str) -> Callable[..., object]:
        plain = getattr(LocalObjects, name)

        def write(self: LocalObjects, key: str, *args: object) -> object:
            if not key.startswith("leases/"):
                if len(done) == number:
                    raise KeyboardInterrupt
                done.append(key)
            return plain(self, key, *args)

        return write

    with mock.patch.multiple(LocalObjects, **{name: counted(name) for name in WRITES}):
        yield done


def test_gc_can_be_stopped_before_any_write(store, small_hub, tmp_path, monkeypatch):
    """Whatever is done by then, the store is sound and the next gc ends where one would have."""
    monkeypatch.setattr(lease, "LEASE_TTL_S", 0.5)  # this process lives on, and so would its lease
    gone = ("other/unrelated", "mirror/base-again")
    for repo in gone:
        rm(store, repo)
    whole = tmp_path / "whole"
    shutil.copytree(store, whole)
    with stopped_at(10**6) as writes:
        gc_inline(whole, compact_below=0.95)
    assert len(writes) > 8
    gc_inline(whole)
    for number in range(len(writes)):
        copy = tmp_path / f"copy{number}"
        shutil.copytree(store, copy)
        with stopped_at(number), pytest.raises(KeyboardInterrupt):
            gc_inline(copy, compact_below=0.95)
        assert verify(open_store(str(copy))).problems == [], writes[number]
        gc_inline(copy, compact_below=0.95)
        gc_inline(copy)
        assert len(packs(copy)) == len(packs(whole)), writes[number]
        last = copy
    check(last, small_hub, tmp_path / "out", gone)


def test_old_work_is_forgotten_before_it_is_removed(tmp_path, small_hub):
    """Whenever a gc that clears it is stopped: the job it belongs to can go on, or start again."""
    store = tmp_path / "store"
    interrupted_ingest(small_hub, store, 3, tasks=SMALL)
    number = 0
    while list((store / "staging").rglob("intent.json")):
        copy = tmp_path / "copy"
        shutil.copytree(store, copy)
        with stopped_at(1), later(2 * WEEK), pytest.raises(KeyboardInterrupt):
            gc_inline(store, grace=WEEK)
        for done in (store / "staging").rglob("done.json"):
            before = copy / done.relative_to(store)
            assert {path.name for path in done.parent.iterdir()} == {
                path.name for path in before.parent.iterdir()
            }
        if number == 1:
            ingest_inline(small_hub, copy, tasks=SMALL)
            check(copy, small_hub, tmp_path / "out")
        shutil.rmtree(copy)
        number += 1
    assert number > 10


def test_a_copy_that_was_lost_since_gc_was_stopped_is_made_again(store, small_hub, tmp_path):
    gone = ("other/unrelated", "mirror/base-again")
    for repo in gone:
        rm(store, repo)
    before = packs(store)
    stopped = mock.patch.object(gc_module, "_commit", side_effect=KeyboardInterrupt)
    with stopped, pytest.raises(KeyboardInterrupt):
        gc_inline(store, grace=WEEK, compact_below=1.0)
    for copy in packs(store) - before:
        (store / keys.pack(copy)).unlink()
    gc_inline(store, grace=WEEK, compact_below=1.0)
    check(store, small_hub, tmp_path / "out", gone)


def test_a_gc_that_wakes_up_late_deletes_nothing_that_came_since(store, small_hub, tmp_path):
    """It halts between its commit and its deletions; the same hub is ingested meanwhile."""
    rm(store, "other/unrelated")
    delete = LocalObjects.delete
    late: list[str] = []

    def not_yet(self: LocalObjects, key: str) -> None:
        if key.startswith(keys.PACKS):
            late.append(key)
        else:
            delete(self, key)

    with mock.patch.object(LocalObjects, "delete", not_yet):
        gc_inline(store)
    assert late
    ingest_inline(small_hub, store, tasks=SMALL)
    check(store, small_hub, tmp_path / "before")
    objects = open_objects(str(store))
    for key in late:
        objects.delete(key)
    check(store, small_hub, tmp_path / "after")


def test_what_an_interrupted_gc_gave_up_is_deleted_by_the_next(store, small_hub, tmp_path):
    rm(store, "other/unrelated")
    with mock.patch.object(gc_module, "_delete"):
        given_up = gc_inline(store).counts["due"]
    assert given_up > 0
    report = gc_inline(store)
    assert report.counts["left_over"] == given_up
    assert gc_inline(store).counts["left_over"] == 0
    check(store, small_hub, tmp_path / "out", ("other/unrelated",))


def test_a_tensor_that_was_given_up_does_not_come_back_as_it_once_was(tmp_path):
    """Its first blob is still there, in a pack that holds more; the base of that is now a delta."""
    hubs, store = write_family(tmp_path / "hubs", 5), tmp_path / "store"
    for number in (1, 2):
        (hubs[number] / f"lab/m{number}/shared.bin").write_bytes(bytes(range(256)) * 8)
    for hub in hubs:
        ingest_inline(hub, store)
    replan_inline(store, tasks=TaskSettings(encode_nbytes=1))  # a pack for each tensor
    rm(store, "lab/m1")
    assert gc_inline(store, compact_below=0.0).counts["due"] >= FAMILY_LAYERS
    ingest_inline(hubs[1], store)
    assert verify(open_store(str(store)), read_data=True).problems == []
    restore_repo(open_store(str(store)), "lab/m1", tmp_path / "out")
    assert file_hashes(tmp_path / "out") == file_hashes(hubs[1] / "lab/m1")


@pytest.mark.parametrize("when", ["_pack_problems", "damaged_pack"])
def test_a_verification_does_not_miss_what_was_given_up_since(store, when):
    rm(store, "other/unrelated")
    plain, collected = getattr(verifying, when), list[GcReport]()

    def late(*args: object) -> object:
        if not collected:
            collected.append(gc_inline(store))
        return plain(*args)

    with mock.patch.object(verifying, when, late):
        assert verify(open_store(str(store)), read_data=True).problems == []
    assert collected[0].counts["due"] > 1


def test_a_verify_job_does_not_miss_what_was_given_up_since(store):
    rm(store, "other/unrelated")
    plain = verify_module._present_packs

    def late(*args: Any) -> list[tuple[str, int]]:
        found = plain(*args)
        assert gc_inline(store).counts["due"] > 1
        return found

    with mock.patch.object(verify_module, "_present_packs", late):
        assert verify_inline(store).problems == []


def test_replanned_packs_go(store, small_hub, tmp_path):
    replan_inline(store)
    gc_inline(store, compact_below=0.9)
    gc_inline(store)
    check(store, small_hub, tmp_path / "out")
