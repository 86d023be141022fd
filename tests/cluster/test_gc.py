"""Garbage: what goes, what must never go, and gc that is stopped, stalled or late."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow.parquet as pq
import pytest

from support.hubs import FAMILY_LAYERS, file_hashes, write_family, write_small_hub
from support.inline import gc_inline, ingest_inline, replan_inline, verify_inline
from support.stores import restore_all
from tstore.catalog import keys, lease, open_store
from tstore.catalog import merge as merging
from tstore.catalog.garbage import read_marks
from tstore.catalog.parquet import to_bytes
from tstore.catalog.removal import Removal, remove, take_back
from tstore.cluster import gc as gc_module
from tstore.cluster import verify as verify_module
from tstore.cluster.gc import GcReport
from tstore.errors import (
    CatalogDamagedError,
    DataGivenUpError,
    LeaseHeldError,
    RepoNotFoundError,
    RevisionNotFoundError,
)
from tstore.objects import open_objects
from tstore.objects.local import LocalObjects
from tstore.restore import verify as verifying
from tstore.restore.describe import list_repos
from tstore.restore.files import restore_repo
from tstore.restore.verify import verify
from tstore.settings import KIB, TaskSettings

SMALL = TaskSettings(scan_nbytes=200 * KIB, encode_nbytes=60 * KIB)
WEEK = timedelta(days=7)


@pytest.fixture
def hub(tmp_path: Path) -> Path:
    return write_small_hub(tmp_path / "hub")


@pytest.fixture
def store(tmp_path: Path, hub: Path) -> Path:
    """Several packs, so that some may go."""
    ingest_inline(hub, tmp_path / "store", tasks=SMALL)
    return tmp_path / "store"


def packs(store: Path) -> set[str]:
    return {path.stem for path in (store / "packs").rglob("*.safetensors")}


@contextmanager
def writer(store: Path) -> Iterator[lease.WriterLease]:
    objects = open_objects(str(store))
    with lease.hold(objects, "test", wait_s=0.0, on_wait=lambda line: None) as held:
        yield held


def rm(store: Path, repo: str, revision: str | None = None) -> Removal:
    with writer(store) as held:
        return remove(open_store(str(store)), held, repo, revision)


def undelete(store: Path, repo: str, revision: str | None = None) -> Removal:
    with writer(store) as held:
        return take_back(open_store(str(store)), held, repo, revision)


def check(store: Path, hub: Path, out: Path, gone: tuple[str, ...] = ()) -> None:
    """The store is sound and gives back all of the hub but some repositories."""
    assert verify(open_store(str(store)), read_data=True).problems == []
    expected = {
        path: sha256
        for path, sha256 in file_hashes(hub).items()
        if not path.startswith(tuple(f"{repo}/" for repo in gone) or ("\0",))
    }
    assert file_hashes(restore_all(store, out)) == expected


@contextmanager
def later(age: timedelta) -> Iterator[None]:
    """The clock of gc, moved on."""
    now = gc_module.utc_now() + age
    with mock.patch.object(gc_module, "utc_now", return_value=now):
        yield


def earlier(age: timedelta) -> AbstractContextManager[None]:
    """The clock of gc, moved back."""
    return later(-age)


# --- removing and taking back -------------------------------------------------------------------


def test_a_removed_repository_is_gone_and_can_be_brought_back(store, hub, tmp_path):
    gone = rm(store, "other/unrelated")
    assert (gone.revisions, gone.files) == (("main",), 3)
    assert gone.freed_nbytes > 0
    assert "other/unrelated" not in [repo.repo for repo in list_repos(open_store(str(store)))]
    with pytest.raises(RepoNotFoundError):
        restore_repo(open_store(str(store)), "other/unrelated", tmp_path / "out")
    check(store, hub, tmp_path / "without", ("other/unrelated",))
    back = undelete(store, "other/unrelated")
    assert (back.files, back.nbytes) == (gone.files, gone.nbytes)
    check(store, hub, tmp_path / "with")


def test_what_is_not_there_cannot_be_removed_or_brought_back(store):
    with pytest.raises(RepoNotFoundError, match="did you mean lab/base"):
        rm(store, "lab/bace")
    with pytest.raises(RevisionNotFoundError, match="found only main"):
        rm(store, "lab/base", "v2")
    with pytest.raises(RepoNotFoundError, match="a removed repository"):
        undelete(store, "lab/base")
    rm(store, "lab/base")
    with pytest.raises(RepoNotFoundError):
        rm(store, "lab/base")


def test_a_removed_repository_that_the_hub_still_has_comes_back_with_the_next_ingest(
    store, hub, tmp_path
):
    rm(store, "lab/tuned")
    ingest_inline(hub, store)
    check(store, hub, tmp_path / "out")


# --- what goes ----------------------------------------------------------------------------------


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


def test_what_a_removed_repository_took_goes_after_the_grace_period(store, hub, tmp_path):
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
    check(store, hub, tmp_path / "out", ("other/unrelated",))
    with pytest.raises(DataGivenUpError, match="ingest the repository again"):
        undelete(store, "other/unrelated")


def test_what_is_removed_again_has_its_grace_period_again(store, hub, tmp_path):
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
    check(store, hub, tmp_path / "out")


def test_what_is_needed_again_is_not_removed_however_old_its_mark(store, hub, tmp_path):
    rm(store, "other/unrelated")
    gc_inline(store, grace=WEEK)
    assert read_marks(open_objects(str(store)))
    undelete(store, "other/unrelated")
    with later(10 * WEEK):
        assert gc_inline(store, grace=WEEK).counts["due"] == 0
    assert not read_marks(open_objects(str(store)))
    check(store, hub, tmp_path / "out")


def test_an_ingest_between_mark_and_deletion_saves_what_it_needs(store, hub, tmp_path):
    """It finds the tensors in the catalog and does not store them again."""
    rm(store, "other/unrelated")
    gc_inline(store, grace=WEEK)
    ingest_inline(hub, store)
    with later(10 * WEEK):
        gc_inline(store, grace=WEEK)
    check(store, hub, tmp_path / "out")


def test_garbled_marks_only_start_the_grace_period_again(store):
    rm(store, "other/unrelated")
    gc_inline(store, grace=WEEK)
    (store / keys.MARKED_PACKS).write_text("[1, 2")
    with later(10 * WEEK):
        assert gc_inline(store, grace=WEEK).counts["due"] == 0
    assert read_marks(open_objects(str(store)))


def test_packs_with_little_of_use_are_compacted(tmp_path, hub):
    store = tmp_path / "store"
    ingest_inline(hub, store)  # all in one pack
    rm(store, "other/unrelated")
    with writer(store) as held:
        for repo in ("lab/tuned", "mirror/base-again"):
            remove(open_store(str(store)), held, repo, None)
    (before,) = packs(store)
    report = gc_inline(store, compact_below=0.9)
    assert report.counts["sparse"] == 1
    assert report.run_id is not None
    check(store, hub, tmp_path / "out", ("other/unrelated", "lab/tuned", "mirror/base-again"))
    gc_inline(store)
    (after,) = packs(store)
    assert after != before
    check(store, hub, tmp_path / "again", ("other/unrelated", "lab/tuned", "mirror/base-again"))


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


def test_a_restore_finds_what_was_moved_and_deleted_under_it(store, hub, tmp_path):
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
    assert file_hashes(tmp_path / "out") == file_hashes(hub / "lab/tuned")


def test_merged_parts_of_the_catalog_go_after_the_grace_period(store, hub, tmp_path, monkeypatch):
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


# --- what must never go -------------------------------------------------------------------------


def test_the_base_of_a_delta_stays_when_its_repositories_are_removed(store, hub, tmp_path):
    rm(store, "lab/base")
    rm(store, "mirror/base-again")
    gc_inline(store, compact_below=1.0)
    gc_inline(store)
    check(store, hub, tmp_path / "out", ("lab/base", "mirror/base-again"))


def test_what_an_interrupted_ingest_has_finished_stays(tmp_path, hub):
    store = tmp_path / "store"

    def stop(stage: str, number: int) -> None:
        if stage == "encode" and number == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ingest_inline(hub, store, tasks=SMALL, before_shard=stop)
    finished = packs(store)
    assert len(finished) == 3
    gc_inline(store, grace=WEEK)
    with later(WEEK / 2):
        gc_inline(store, grace=WEEK)
    assert packs(store) == finished
    report = ingest_inline(hub, store, tasks=SMALL)
    assert report.stages["encode"].shards_resumed == 3
    check(store, hub, tmp_path / "out")


def test_work_that_was_never_finished_goes_in_the_end(tmp_path, hub):
    store = tmp_path / "store"

    def stop(stage: str, number: int) -> None:
        if stage == "encode" and number == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ingest_inline(hub, store, tasks=SMALL, before_shard=stop)
    with later(2 * WEEK):
        gc_inline(store, grace=WEEK)
    with later(4 * WEEK):
        gc_inline(store, grace=WEEK)
    assert packs(store) == set()
    ingest_inline(hub, store, tasks=SMALL)
    check(store, hub, tmp_path / "out")


def test_a_base_that_an_interrupted_ingest_rests_on_stays(tmp_path, hub):
    """Its delta is encoded already; the job will not do it again."""
    store = tmp_path / "store"
    ingest_inline(hub, store, include=("lab/base",))
    rest = {"include": ("lab/tuned",), "tasks": SMALL}

    def stop(stage: str, number: int) -> None:
        if stage == "encode" and number == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ingest_inline(hub, store, before_shard=stop, **rest)
    rm(store, "lab/base")
    gc_inline(store, grace=WEEK)
    with later(WEEK / 2):
        gc_inline(store, grace=WEEK / 4)
    ingest_inline(hub, store, **rest)
    assert verify(open_store(str(store)), read_data=True).problems == []
    restore_repo(open_store(str(store)), "lab/tuned", tmp_path / "out")
    assert file_hashes(tmp_path / "out") == file_hashes(hub / "lab/tuned")


def test_earlier_states_of_a_repository_stay(store, hub, tmp_path):
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
def test_nothing_is_given_up_while_the_catalog_is_damaged(store, hub, tmp_path, table):
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
    check(store, hub, tmp_path / "out")


def test_damaged_parts_of_the_catalog_are_not_merged(store, hub, monkeypatch):
    monkeypatch.setattr(merging, "AT_LEAST", 2)
    (hub / "lab/base/new.md").write_text("new")
    ingest_inline(hub, store)
    part = open_store(str(store)).catalog().parts("plans")[0]
    rows = pq.read_table(store / part.key)
    (store / part.key).write_bytes(to_bytes(rows.slice(0, rows.num_rows // 2)))
    for job in (gc_inline, replan_inline):
        with pytest.raises(CatalogDamagedError, match=part.key):
            job(store)


# --- gc that is stopped, or stalls --------------------------------------------------------------

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


def test_gc_can_be_stopped_before_any_write(store, hub, tmp_path, monkeypatch):
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
    check(last, hub, tmp_path / "out", gone)


def test_old_work_is_forgotten_before_it_is_removed(tmp_path, hub):
    """Whenever a gc that clears it is stopped: the job it belongs to can go on, or start again."""
    store = tmp_path / "store"

    def stop(stage: str, number: int) -> None:
        if stage == "encode" and number == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ingest_inline(hub, store, tasks=SMALL, before_shard=stop)
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
            ingest_inline(hub, copy, tasks=SMALL)
            check(copy, hub, tmp_path / "out")
        shutil.rmtree(copy)
        number += 1
    assert number > 10


def test_a_copy_that_was_lost_since_gc_was_stopped_is_made_again(store, hub, tmp_path):
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
    check(store, hub, tmp_path / "out", gone)


def test_a_gc_that_wakes_up_late_deletes_nothing_that_came_since(store, hub, tmp_path):
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
    ingest_inline(hub, store, tasks=SMALL)
    check(store, hub, tmp_path / "before")
    objects = open_objects(str(store))
    for key in late:
        objects.delete(key)
    check(store, hub, tmp_path / "after")


def test_what_an_interrupted_gc_gave_up_is_deleted_by_the_next(store, hub, tmp_path):
    rm(store, "other/unrelated")
    with mock.patch.object(gc_module, "_delete"):
        given_up = gc_inline(store).counts["due"]
    assert given_up > 0
    report = gc_inline(store)
    assert report.counts["left_over"] == given_up
    assert gc_inline(store).counts["left_over"] == 0
    check(store, hub, tmp_path / "out", ("other/unrelated",))


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


def test_replanned_packs_go(store, hub, tmp_path):
    replan_inline(store)
    gc_inline(store, compact_below=0.9)
    gc_inline(store)
    check(store, hub, tmp_path / "out")
