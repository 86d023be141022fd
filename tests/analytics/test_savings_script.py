"""analytics/savings.py: tables, JSON and errors."""

import io
import json
import shutil
import subprocess
import sys

import pytest
from rich.console import Console

import savings
from support.views import ANALYTICS, rows_of
from tstore.catalog import open_store
from tstore.catalog.store import open_or_create
from tstore.errors import CatalogDamagedError, StoreNotFoundError
from tstore.settings import SketchSettings

SCRIPT = ANALYTICS / "savings.py"


def test_json_holds_every_report(grown, capsys):
    savings.main(store=str(grown), as_json=True)
    assert json.loads(capsys.readouterr().out) == rows_of(grown, savings.REPORTS)


@pytest.mark.parametrize("width", [60, 200])
def test_tables_fit_the_terminal(store, width):
    out = io.StringIO()
    savings.print_reports(
        savings.read_reports(open_store(str(store))), Console(file=out, width=width)
    )
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    titles = [
        line.rstrip() for line in lines if line.startswith(("now", "savings", "predicted", "rej"))
    ]
    assert titles == [name.replace("_", " ") for name in savings.REPORTS]


def test_long_reports_end_early():
    out = io.StringIO()
    reports = {"savings_by_repository": [{"repo": f"lab/{n}", "bytes_in": n} for n in range(23)]}
    savings.print_reports(reports, Console(file=out, width=80))
    assert "lab/19 " in out.getvalue()
    assert "lab/20 " not in out.getvalue()
    assert "and 3 more" in out.getvalue()


def test_a_store_without_a_run(tmp_path):
    store = open_or_create(str(tmp_path / "s"), SketchSettings())
    with pytest.raises(StoreNotFoundError, match="ingest a hub first"):
        savings.read_reports(store)


def test_errors_are_one_line(tmp_path):
    command = [sys.executable, str(SCRIPT), "--store", str(tmp_path / "none")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: expected a tstore store at ")
    assert done.stderr.count("\n") == 1


def test_a_lost_part_is_an_error(store, tmp_path):
    shutil.copytree(store, tmp_path / "s")
    next((tmp_path / "s/catalog/savings").rglob("*.parquet")).unlink()
    with pytest.raises(CatalogDamagedError, match="No files found"):
        savings.read_reports(open_store(str(tmp_path / "s")))
