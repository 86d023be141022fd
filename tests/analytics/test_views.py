"""The views over a store: they show what the catalog holds, wherever it lies."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import duckdb
import duckdb_cli
import pytest

import store_views
from support.inline import ingest_inline
from support.stores import upload
from support.views import ANALYTICS, open_views, rows, rows_of
from tstore.catalog import keys, open_store
from tstore.catalog.schema import TABLES

MADE = re.compile(r"^CREATE OR REPLACE TEMP (?:VIEW|TABLE) (\w+)", re.MULTILINE)
ALL_VIEWS = [name for path in store_views.sql_files() for name in MADE.findall(path.read_text())]
ODD_NAME = "it's a [new] *store*/env=prod/run=7"


def content_of(store):
    """All views of a store, the rows in an order of their own: of some it is not defined."""
    return {view: sorted(map(repr, found)) for view, found in rows_of(store, ALL_VIEWS).items()}


@pytest.mark.parametrize("view", [*TABLES, "current_files", "current_blobs"])
def test_rows_are_those_of_the_catalog(grown, view):
    def content(connection):
        relation = connection.sql(f"FROM {view}")
        return relation.columns, sorted(map(repr, relation.fetchall()))

    with open_store(str(grown)).catalog().connect() as connection:
        expected = content(connection)
    with open_views(grown) as connection:
        assert content(connection) == expected
    assert view in ("rejects", "removals", "dropped_packs") or len(expected[1]) > 2


def test_runs_are_those_of_the_markers(grown):
    markers = open_store(str(grown)).catalog().runs
    found = rows(grown, "runs")
    assert [row["run"] for row in found] == [marker.run_id for marker in markers]
    assert [json.loads(row["counts"]) for row in found] == [marker.counts for marker in markers]
    times = [marker.committed_at.removesuffix("+00:00") for marker in markers]
    assert [row["committed_at"].isoformat() for row in found] == times


def test_an_uncommitted_run_is_invisible(store, grown, tmp_path):
    shutil.copytree(grown, tmp_path / "s")
    last = open_store(str(grown)).catalog().runs[-1]
    (tmp_path / "s" / keys.run_marker(last.run_id)).unlink()
    assert any((tmp_path / "s" / keys.table_run("files", last.run_id)).iterdir())
    assert content_of(tmp_path / "s") == content_of(store)


def test_a_store_may_lie_anywhere(grown, tmp_path):
    shutil.copytree(grown, tmp_path / ODD_NAME)
    assert content_of(tmp_path / ODD_NAME) == content_of(grown)


def test_tables_without_rows(tmp_path):
    (tmp_path / "hub/lab/notes").mkdir(parents=True)
    (tmp_path / "hub/lab/notes/README.md").write_text("nothing but text\n" * 40)
    ingest_inline(tmp_path / "hub", tmp_path / "s")
    found = rows_of(tmp_path / "s", ALL_VIEWS)
    for view in ("tensors", "fingerprints", "pairs", "rejects", "rejected"):
        assert found[view] == []
    (family,) = found["savings_by_family"]
    assert (family["family"], family["bytes_in"]) == ("lab/notes", 17 * 40)
    plain = duckdb.sql(f"FROM read_parquet('{tmp_path}/s/catalog/rejects/*/*.parquet')")
    assert plain.columns == [*TABLES["rejects"].names, "run"]


def test_the_store_must_be_named():
    with duckdb.connect() as connection, pytest.raises(duckdb.Error, match="SET VARIABLE store"):
        connection.execute((ANALYTICS / "tables.sql").read_text(encoding="utf-8"))


def test_every_file_and_view_is_documented():
    assert {path.name for path in store_views.sql_files()} == {
        path.name for path in ANALYTICS.glob("*.sql")
    } - {"views.sql"}
    told = set(re.findall(r"`(\w+)`", (ANALYTICS / "README.md").read_text()))
    assert set(ALL_VIEWS) - told == set()


def test_the_shell_shows_the_same(grown):
    """The DuckDB shell itself, by the two lines that the README names."""
    shell = Path(duckdb_cli.__file__).with_name("duckdb")
    set_store = f"SET VARIABLE store = '{grown}'"
    command = [shell, "-json", "-cmd", set_store, "-cmd", ".read analytics/views.sql"]
    query = "SELECT repo, bytes_stored, ratio FROM now_by_repository"
    done = subprocess.run(
        [*command, "-c", query], capture_output=True, check=True, cwd=ANALYTICS.parent
    )
    with open_views(grown) as connection:
        assert json.loads(done.stdout) == store_views.rows(connection, query)


def test_a_store_in_object_storage_shows_the_same(grown, s3):
    assert content_of(upload(grown, s3.uri())) == content_of(grown)
