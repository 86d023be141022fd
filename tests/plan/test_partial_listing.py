"""What a listing says nothing of stays in its revision as it was."""

from __future__ import annotations

from pathlib import Path

from support.hubs import file_hashes, write_small_hub
from support.inline import ingest_inline
from support.stores import pack_file
from tstore.catalog import open_store
from tstore.restore.files import restore_repo
from tstore.restore.verify import verify
from tstore.settings import KIB, TaskSettings


def restored(store: Path, repo: str, folder: Path) -> dict[str, str]:
    """Hashes of what the store gives for a repository now."""
    restore_repo(open_store(str(store)), repo, folder)
    return file_hashes(folder)


def test_a_pattern_hides_no_file_that_is_known(tmp_path: Path) -> None:
    hub, store = write_small_hub(tmp_path / "hub"), tmp_path / "store"
    ingest_inline(hub, store)
    whole = file_hashes(hub / "lab/base")
    (hub / "lab/base/config.json").write_text("{}")
    ingest_inline(hub, store, include=("*.json",))
    now = restored(store, "lab/base", tmp_path / "restored")
    assert now == file_hashes(hub / "lab/base")
    assert now.keys() == whole.keys()


def test_a_pattern_alone_takes_only_what_it_selects_until_the_rest_comes(tmp_path: Path) -> None:
    hub, store = write_small_hub(tmp_path / "hub"), tmp_path / "store"
    ingest_inline(hub, store, exclude=("*.safetensors",))
    assert "model.safetensors" not in restored(store, "lab/base", tmp_path / "part")
    ingest_inline(hub, store)
    assert restored(store, "lab/base", tmp_path / "all") == file_hashes(hub / "lab/base")


def test_a_deleted_file_leaves_the_new_state_but_not_the_old(tmp_path: Path) -> None:
    hub, store = write_small_hub(tmp_path / "hub"), tmp_path / "store"
    before = file_hashes(hub / "lab/base")
    run = ingest_inline(hub, store).run_id
    (hub / "lab/base/README.md").unlink()
    ingest_inline(hub, store)
    assert "README.md" not in restored(store, "lab/base", tmp_path / "now")
    restore_repo(open_store(str(store)), "lab/base", tmp_path / "then", revision=f"main@{run}")
    assert file_hashes(tmp_path / "then") == before


def test_a_file_that_changes_during_the_ingest_keeps_its_last_state(tmp_path: Path) -> None:
    hub, store = write_small_hub(tmp_path / "hub"), tmp_path / "store"
    ingest_inline(hub, store)
    before = file_hashes(hub / "lab/base")
    model = hub / "lab/base/model.safetensors"
    model.write_bytes(model.read_bytes()[:-1] + b"\x01")

    def write_again(stage: str, number: int) -> None:
        if stage == "encode" and number == 0:
            model.write_bytes(model.read_bytes()[:-1] + b"\x02")

    report = ingest_inline(hub, store, before_shard=write_again)
    assert [row["stored"] for row in report.rejects.to_pylist()] == [False]
    assert restored(store, "lab/base", tmp_path / "kept") == before
    ingest_inline(hub, store)
    assert restored(store, "lab/base", tmp_path / "now") == file_hashes(hub / "lab/base")


def test_a_file_that_is_rejected_again_makes_no_run(tmp_path: Path) -> None:
    hub, store = write_small_hub(tmp_path / "hub"), tmp_path / "store"
    model = hub / "other/unrelated/model.safetensors"

    def ingest_while_it_changes() -> tuple[str | None, int]:
        def write_again(stage: str, number: int) -> None:
            if stage == "encode" and number == 0:
                model.write_bytes(model.read_bytes()[:-1] + b"\x02")

        report = ingest_inline(hub, store, before_shard=write_again)
        return report.run_id, report.counts["files_rejected"]

    first, rejected = ingest_while_it_changes()
    assert first is not None
    assert rejected == 2  # the broken file of this hub is the other one
    assert ingest_while_it_changes() == (None, 1)
    assert len(open_store(str(store)).catalog().runs) == 1


def test_an_ingest_stores_again_what_a_lost_pack_held(tmp_path: Path) -> None:
    hub, store = write_small_hub(tmp_path / "hub"), tmp_path / "store"
    small = TaskSettings(encode_nbytes=100 * KIB)
    ingest_inline(hub, store, tasks=small)
    packs = sorted((store / "packs").rglob("*.safetensors"))
    assert len(packs) > 3
    for pack in packs[::2]:
        pack.unlink()
    assert verify(open_store(str(store))).problems
    ingest_inline(hub, store, tasks=small)
    assert not verify(open_store(str(store)), read_data=True).problems
    assert ingest_inline(hub, store, tasks=small).run_id is None
    for repo in ("lab/base", "lab/tuned", "mirror/base-again", "other/unrelated", "lab/broken"):
        assert restored(store, repo, tmp_path / repo) == file_hashes(hub / repo)


def test_a_pattern_hides_no_file_whose_pack_is_lost(tmp_path: Path) -> None:
    """A backup may bring it back."""
    hub, store = write_small_hub(tmp_path / "hub"), tmp_path / "store"
    ingest_inline(hub, store, include=("lab/base",))
    pack = pack_file(store)
    data = pack.read_bytes()
    pack.unlink()
    (hub / "lab/base/more.json").write_text("{}")
    ingest_inline(hub, store, include=("*.json",))
    pack.write_bytes(data)
    assert restored(store, "lab/base", tmp_path / "out") == file_hashes(hub / "lab/base")


def test_what_lies_in_a_lost_pack_is_taken_in_again(tmp_path: Path) -> None:
    hub, store = write_small_hub(tmp_path / "hub"), tmp_path / "store"
    ingest_inline(hub, store)
    pack_file(store).unlink()
    ingest_inline(hub, store)
    assert verify(open_store(str(store)), read_data=True).problems == []
    assert restored(store, "lab/base", tmp_path / "out") == file_hashes(hub / "lab/base")
