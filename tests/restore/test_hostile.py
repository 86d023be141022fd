"""Catalogs that were made to do harm."""

import pytest

from support.hubs import file_hashes
from support.stores import edit_rows
from tstore.catalog import open_store
from tstore.errors import DestinationConflictError, UnsafePathError
from tstore.ids import check_relative_path
from tstore.restore.files import restore_repo

REPO = "lab/base"


def rename(store, old, new):
    """Give a file of the repository another path."""

    def change(rows):
        (row,) = [r for r in rows if (r["repo"], r["path"]) == (REPO, old)]
        row["path"] = new

    edit_rows(store, "files", change)


UNSAFE = ["", ".", "..", "../x", "a/../../x", "a/../x", "./x", "a//x", "a/", "/absolute/x", "//x"]
UNSAFE += ["..\\x", "a\\..\\..\\x", "a\0b", "\0"]


@pytest.mark.parametrize("path", UNSAFE)
def test_unsafe_paths(path):
    with pytest.raises(UnsafePathError, match="it is refused"):
        check_relative_path(path)


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/absolute/x", "", "..\\x"])
def test_they_are_refused_before_anything_is_written(own_store, tmp_path, path):
    rename(own_store, "config.json", path)
    before = file_hashes(tmp_path)
    with pytest.raises(UnsafePathError, match="it is refused"):
        restore_repo(open_store(str(own_store)), REPO, tmp_path / "in" / "out")
    assert file_hashes(tmp_path) == before
    assert not (tmp_path / "in").exists()


def test_an_absolute_path_to_a_file_that_exists(own_store, tmp_path):
    target = tmp_path / "precious"
    target.write_text("precious")
    rename(own_store, "config.json", str(target))
    with pytest.raises(UnsafePathError):
        restore_repo(open_store(str(own_store)), REPO, tmp_path / "out")
    assert target.read_text() == "precious"


@pytest.mark.parametrize("path", ["README.md", "README.md/x", "model.safetensors"])
def test_two_files_that_cannot_both_exist(own_store, tmp_path, path):
    rename(own_store, "config.json", path)
    with pytest.raises(DestinationConflictError):
        restore_repo(open_store(str(own_store)), REPO, tmp_path / "out")


def test_odd_but_harmless_paths(own_store, small_hub, tmp_path):
    names = ["...", ".hidden", "-rf", "a b", "é\n", "~", "$HOME", "con"]
    path = "/".join(names)
    rename(own_store, "config.json", path)
    restore_repo(open_store(str(own_store)), REPO, tmp_path / "out")
    assert (tmp_path / "out" / path).read_bytes() == (small_hub / REPO / "config.json").read_bytes()


@pytest.mark.parametrize("repo", ["../../x", "/etc", ""])
def test_the_name_of_a_repository_is_not_a_path(own_store, small_hub, tmp_path, repo):
    def change(rows):
        for row in rows:
            if row["repo"] == REPO:
                row["repo"] = repo

    edit_rows(own_store, "files", change)
    restore_repo(open_store(str(own_store)), repo, tmp_path / "out")
    assert file_hashes(tmp_path / "out") == file_hashes(small_hub / REPO)
