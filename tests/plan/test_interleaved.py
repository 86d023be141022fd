"""Jobs that meet, stall or are told late: nothing that was committed is touched."""

from __future__ import annotations

import json
import os
from pathlib import Path
from unittest import mock

import pytest

from support.hubs import file_hashes, write_small_hub
from support.inline import ingest_inline
from tstore.catalog import keys, lease, open_store
from tstore.errors import LeaseLostError
from tstore.restore.files import restore_repo
from tstore.restore.verify import verify


def expire_lease(store: Path) -> None:
    """As if the holder had not renewed it for long."""
    path = store / keys.WRITER_LEASE
    path.write_text(json.dumps({**json.loads(path.read_text()), "expires_at": 0.0}))


def test_a_job_that_stalled_before_its_commit_touches_nothing(tmp_path: Path) -> None:
    hub, store = write_small_hub(tmp_path / "hub"), tmp_path / "store"
    write = lease.WriterLease.check
    stalled: list[bool] = []

    def stall(self: lease.WriterLease) -> None:
        if not stalled:
            stalled.append(True)
            expire_lease(store)
            (hub / "lab/base/new.md").write_text("new")
            ingest_inline(hub, store)  # another job takes over and finishes
        write(self)

    with mock.patch.object(lease.WriterLease, "check", stall), pytest.raises(LeaseLostError):
        ingest_inline(hub, store)
    assert len(open_store(str(store)).catalog().runs) == 1
    assert not verify(open_store(str(store)), read_data=True).problems
    restore_repo(open_store(str(store)), "lab/base", tmp_path / "out")
    assert file_hashes(tmp_path / "out") == file_hashes(hub / "lab/base")


def test_a_job_that_waited_takes_the_hub_as_it_is_then(tmp_path: Path) -> None:
    hub, store = write_small_hub(tmp_path / "hub"), tmp_path / "store"
    acquire = lease._acquire

    def change_meanwhile(*args: object) -> str:
        with mock.patch.object(lease, "_acquire", acquire):
            (hub / "lab/base/new.md").write_text("new")
            ingest_inline(hub, store)
        return acquire(*args)  # type: ignore[arg-type]

    with mock.patch.object(lease, "_acquire", change_meanwhile):
        assert ingest_inline(hub, store).run_id is None
    restore_repo(open_store(str(store)), "lab/base", tmp_path / "out")
    assert file_hashes(tmp_path / "out") == file_hashes(hub / "lab/base")


def test_shards_of_an_interrupted_job_count_only_with_their_packs(tmp_path: Path) -> None:
    hub, store = write_small_hub(tmp_path / "hub"), tmp_path / "store"
    with (
        mock.patch("tstore.catalog.publish.commit", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        ingest_inline(hub, store)
    (pack,) = (store / "packs").rglob("*.safetensors")
    pack.write_bytes(pack.read_bytes()[:-1])
    assert ingest_inline(hub, store).run_id is not None
    assert not verify(open_store(str(store)), read_data=True).problems


def test_a_link_out_of_the_hub_is_told_every_time(tmp_path: Path) -> None:
    hub, store = write_small_hub(tmp_path / "hub"), tmp_path / "store"
    (tmp_path / "secret").write_text("secret")
    (hub / "lab/base/secret").symlink_to(tmp_path / "secret")
    assert ingest_inline(hub, store).counts["files_rejected"] == 2
    again = ingest_inline(hub, store)
    assert again.run_id is None
    assert [row["reason"] for row in again.rejects.to_pylist()] == ["SymlinkEscapesError"]
    assert again.counts["files_rejected"] == 1


def test_main_follows_its_ref_back(tmp_path: Path) -> None:
    cache, store = tmp_path / "hub", tmp_path / "store"
    repo = cache / "models--org--name"
    commits = ("a" * 40, "b" * 40)
    for commit in commits:
        (repo / "snapshots" / commit).mkdir(parents=True)
        (repo / "snapshots" / commit / "config.json").write_text(commit)
    (repo / "refs").mkdir()
    aside = tmp_path / "aside"
    os.rename(repo / "snapshots" / commits[1], aside)
    for now, other in (commits, commits[::-1], commits):
        if not (repo / "snapshots" / now).exists():
            os.rename(repo / "snapshots" / other, tmp_path / "swap")
            os.rename(aside, repo / "snapshots" / now)
            os.rename(tmp_path / "swap", aside)
        (repo / "refs/main").write_text(now)
        ingest_inline(cache, store)
        out = tmp_path / f"out-{len(list(tmp_path.glob('out-*')))}"
        restore_repo(open_store(str(store)), "org/name", out, revision="main")
        assert (out / "config.json").read_text() == now


def test_names_with_a_colon_come_back(tmp_path: Path) -> None:
    hub, store = write_small_hub(tmp_path / "hub"), tmp_path / "store"
    (hub / "lab/base/C:notes.txt").write_text("a")
    ingest_inline(hub, store)
    restore_repo(open_store(str(store)), "lab/base", tmp_path / "out")
    assert file_hashes(tmp_path / "out") == file_hashes(hub / "lab/base")
