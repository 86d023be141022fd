"""The verify job says what ``tstore verify --read-data`` says, and leaves no trace."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from support.hubs import file_hashes
from support.inline import verify_inline
from support.stores import pack_file
from tstore.catalog import open_store
from tstore.cluster import verify as job
from tstore.restore.verify import verify


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)


def in_a_blob(store: Path) -> None:
    flip(pack_file(store), -100)


def in_a_header(store: Path) -> None:
    flip(pack_file(store), 20)


def in_a_table(store: Path) -> None:
    flip(next((store / "catalog/pairs").rglob("*.parquet")), 30)


def no_pack(store: Path) -> None:
    pack_file(store).unlink()


def nothing(store: Path) -> None:
    pass


@pytest.mark.parametrize("damage", [nothing, in_a_blob, in_a_header, in_a_table, no_pack])
def test_it_finds_what_the_command_finds(small_store, tmp_path, monkeypatch, damage):
    monkeypatch.setattr(job, "SHARD_NBYTES", 100_000)
    store = tmp_path / "store"
    shutil.copytree(small_store, store)
    damage(store)
    before = file_hashes(store)
    found = verify_inline(store)
    expected = verify(open_store(str(store)), read_data=True)
    assert sorted(found.problems) == sorted(expected.problems)
    assert bool(found.problems) == (damage is not nothing)
    assert (found.files, found.blobs, found.packs) == (
        expected.files,
        expected.blobs,
        expected.packs,
    )
    assert file_hashes(store) == before
