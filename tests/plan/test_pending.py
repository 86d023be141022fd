"""What a hub holds that the store does not."""

import os

import pytest

from support.hubs import file_hashes, safetensors_bytes, write_small_hub
from support.inline import ingest_inline
from support.stores import restore_all
from tstore.catalog import open_store
from tstore.catalog.store import open_or_create
from tstore.hub.snapshot import list_hub
from tstore.plan.pending import find_pending
from tstore.restore.files import restore_repo
from tstore.settings import SketchSettings

ONE, TWO = "1" * 40, "2" * 40


def pending_of(hub, store):
    with open_store(str(store)).catalog().connect() as connection:
        return find_pending(list_hub(str(hub)), connection)


def paths(rows):
    return {(row["repo"], row["path"]) for row in rows.to_pylist()}


def replace(path, content):
    """Another file under the same name: another inode, whatever the clock's resolution."""
    other = path.with_name("other")
    other.write_bytes(content)
    other.rename(path)


@pytest.fixture
def hub_and_store(tmp_path):
    """A hub to be changed, and a store that holds it as it was."""
    hub = write_small_hub(tmp_path / "hub")
    ingest_inline(hub, tmp_path / "store")
    return hub, tmp_path / "store"


def test_everything_is_pending_for_an_empty_store(small_hub, tmp_path):
    open_or_create(str(tmp_path), SketchSettings())
    pending = pending_of(small_hub, tmp_path)
    found = {f"{repo}/{path}" for repo, path in paths(pending.occurrences)}
    assert found == file_hashes(small_hub).keys()
    assert pending.carried_files.num_rows == pending.carried_tensors.num_rows == 0
    rows = pending.occurrences.to_pylist()
    assert [source.source for source, _ in pending.sources] == [row["source"] for row in rows]
    assert [row["ord"] for row in rows] == list(range(len(rows)))
    assert not pending.empty


def test_an_unchanged_hub_is_not(small_hub, small_store):
    pending = pending_of(small_hub, small_store)
    assert pending.empty
    assert pending.sources == []


def test_of_a_changed_repository_only_the_changed_file_is_read(hub_and_store, tmp_path):
    hub, store = hub_and_store
    replace(hub / "lab/base/README.md", b"# changed\n")
    pending = pending_of(hub, store)
    assert paths(pending.occurrences) == {("lab/base", "README.md")}
    carried = {("lab/base", "config.json"), ("lab/base", "model.safetensors")}
    assert paths(pending.carried_files) == carried
    assert paths(pending.carried_tensors) == {("lab/base", "model.safetensors")}
    assert pending.carried_tensors.num_rows == 6

    report = ingest_inline(hub, store)

    assert report.counts["files"] == 1
    assert file_hashes(restore_all(store, tmp_path / "restored")) == file_hashes(hub)
    assert pending_of(hub, store).empty
    report = ingest_inline(hub, store)
    assert (report.run_id, report.stages) == (None, {})
    (hub / "lab/base/README.md").rename(hub / "lab/base/NOTES.md")
    pending = pending_of(hub, store)
    assert paths(pending.occurrences) == {("lab/base", "NOTES.md")}
    assert paths(pending.carried_files) == carried, "what was carried is carried again"
    assert pending.carried_tensors.num_rows == 6


def test_carried_rows_are_those_that_were_committed(hub_and_store):
    hub, store = hub_and_store
    with open_store(str(store)).catalog().connect() as connection:
        text = "SELECT * EXCLUDE run FROM {} WHERE repo = 'lab/base' AND path LIKE 'model%' ORDER BY ALL"
        before = [connection.sql(text.format(table)).fetchall() for table in ("files", "tensors")]
    (hub / "lab/base/new.txt").write_text("new")
    ingest_inline(hub, store)
    with open_store(str(store)).catalog().connect() as connection:
        text = text.replace("WHERE", "WHERE run = (SELECT max(run) FROM files) AND")
        after = [connection.sql(text.format(table)).fetchall() for table in ("files", "tensors")]
    assert after == before


def test_a_removed_file_leaves_the_revision_without_reading_anything(hub_and_store, tmp_path):
    hub, store = hub_and_store
    first = open_store(str(store)).catalog().runs[0].run_id
    (hub / "lab/base/README.md").unlink()
    pending = pending_of(hub, store)
    assert pending.sources == []
    assert not pending.empty
    ingest_inline(hub, store)
    assert file_hashes(restore_all(store, tmp_path / "now")) == file_hashes(hub)
    restore_repo(open_store(str(store)), "lab/base", tmp_path / "then", revision=f"main@{first}")
    assert (tmp_path / "then/README.md").read_text() == "# lab/base\n"


def test_what_the_listing_refuses_is_told_once(hub_and_store):
    hub, store = hub_and_store
    (hub / "lab/base/dangling").symlink_to("nowhere")
    (reject,) = pending_of(hub, store).rejects.to_pylist()
    assert (reject["path"], reject["reason"]) == ("dangling", "BrokenSymlinkError")
    assert not reject["stored"]
    report = ingest_inline(hub, store)
    assert report.run_id is not None
    assert report.rejects.num_rows == 1
    assert pending_of(hub, store).empty


# --- the cache of the Hugging Face client -----------------------------------------------------


@pytest.fixture
def cache(tmp_path):
    """A cache with two revisions of one repository that share a weights blob, and its store."""
    repo = tmp_path / "hub/models--org--name"
    (repo / "blobs").mkdir(parents=True)
    (repo / "refs").mkdir()
    (repo / "blobs/weights").write_bytes(safetensors_bytes({}) + b"")
    for commit in (ONE, TWO):
        folder = repo / "snapshots" / commit
        folder.mkdir(parents=True)
        (folder / "model.safetensors").symlink_to("../../blobs/weights")
        (folder / "config.json").write_text(commit)
    (repo / "refs/main").write_text(ONE)
    ingest_inline(repo.parent, tmp_path / "store")
    return repo, tmp_path / "store"


def test_one_blob_under_two_revisions_is_one_source(cache):
    repo, store = cache
    open_or_create(str(store.parent / "other"), SketchSettings())
    pending = pending_of(repo.parent, store.parent / "other")
    assert pending.occurrences.num_rows == 4
    assert len(pending.sources) == 3


def test_a_source_is_scanned_under_the_path_that_tells_its_format(tmp_path):
    repo = tmp_path / "hub/models--org--name"
    folder = repo / "snapshots" / ONE
    folder.mkdir(parents=True)
    (repo / "blobs").mkdir()
    (repo / "blobs/weights").write_bytes(safetensors_bytes({}))
    for name in ("a-copy", "model.safetensors", "z-copy"):
        (folder / name).symlink_to("../../blobs/weights")
    open_or_create(str(tmp_path / "store"), SketchSettings())
    pending = pending_of(repo.parent, tmp_path / "store")
    ((_, path),) = pending.sources
    assert path == "model.safetensors"


def test_a_moved_ref_is_noticed_and_nothing_is_read(cache, tmp_path):
    repo, store = cache
    assert pending_of(repo.parent, store).empty
    (repo / "refs/main").write_text(TWO)

    pending = pending_of(repo.parent, store)
    assert pending.sources == []
    refs = {row["revision"]: row["refs"] for row in pending.carried_files.to_pylist()}
    assert refs == {ONE: [], TWO: ["main"]}
    assert pending.carried_files.num_rows == 4

    first = open_store(str(store)).catalog().runs[0].run_id
    ingest_inline(repo.parent, store)
    opened = open_store(str(store))
    for revision, commit in (("main", TWO), (ONE, ONE), (None, TWO), (f"main@{first}", ONE)):
        folder = tmp_path / f"restored-{revision}"
        assert restore_repo(opened, "org/name", folder, revision=revision).revision == commit
        assert (folder / "config.json").read_text() == commit
    assert pending_of(repo.parent, store).empty


def test_a_new_revision_leaves_the_old_one_alone(cache):
    repo, store = cache
    three = "3" * 40
    folder = repo / "snapshots" / three
    folder.mkdir()
    os.symlink("../../blobs/weights", folder / "model.safetensors")
    pending = pending_of(repo.parent, store)
    assert {row["revision"] for row in pending.occurrences.to_pylist()} == {three}
    assert pending.carried_files.num_rows == 0
