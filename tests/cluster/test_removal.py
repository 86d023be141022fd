"""Removing repositories, and taking them back."""

from __future__ import annotations

import pytest

from support.inline import ingest_inline
from support.upkeep import check, rm, undelete
from tstore.catalog import open_store
from tstore.errors import RepoNotFoundError, RevisionNotFoundError
from tstore.restore.describe import list_repos
from tstore.restore.files import restore_repo


def test_a_removed_repository_is_gone_and_can_be_brought_back(store, small_hub, tmp_path):
    gone = rm(store, "other/unrelated")
    assert (gone.revisions, gone.files) == (("main",), 3)
    assert gone.freed_nbytes > 0
    assert "other/unrelated" not in [repo.repo for repo in list_repos(open_store(str(store)))]
    with pytest.raises(RepoNotFoundError):
        restore_repo(open_store(str(store)), "other/unrelated", tmp_path / "out")
    check(store, small_hub, tmp_path / "without", ("other/unrelated",))
    back = undelete(store, "other/unrelated")
    assert (back.files, back.nbytes) == (gone.files, gone.nbytes)
    check(store, small_hub, tmp_path / "with")


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
    store, small_hub, tmp_path
):
    rm(store, "lab/tuned")
    ingest_inline(small_hub, store)
    check(store, small_hub, tmp_path / "out")
