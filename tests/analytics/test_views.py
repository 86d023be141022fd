"""The views over a store: they show what the catalog holds, wherever it lies."""

import json
import shutil

import duckdb
import pytest

from support.inline import ingest_inline
from support.views import VIEWS, open_views, rows, rows_of
from tstore.catalog import keys, open_store
from tstore.catalog.schema import TABLES

REPORTS = (
    "savings_by_run",
    "savings_total",
    "savings_by_repository",
    "savings_by_family",
    "savings_by_dtype",
    "savings_by_codec",
    "savings_by_role",
    "predicted_against_real",
    "rejected",
)
ALL_VIEWS = ("runs", *TABLES, "families", *REPORTS)
ODD_NAME = "it's a [new] *store*/env=prod/run=7"


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
    assert rows_of(tmp_path / "s", ALL_VIEWS) == rows_of(store, ALL_VIEWS)


def test_a_store_may_lie_anywhere(grown, tmp_path):
    shutil.copytree(grown, tmp_path / ODD_NAME)
    assert rows_of(tmp_path / ODD_NAME, ALL_VIEWS) == rows_of(grown, ALL_VIEWS)


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
        connection.execute(VIEWS.read_text(encoding="utf-8"))
