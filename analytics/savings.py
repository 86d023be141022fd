"""Tell where the bytes of a store went: the reports of views.sql, as tables or as JSON."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer
from rich.console import Console

from store_views import Row, open_views, rows
from tstore.catalog import Store, open_store
from tstore.cli.errors import exit_on_error
from tstore.cli.tables import human, print_table

REPORTS = (
    "now_total",
    "savings_by_run",
    "savings_total",
    "savings_by_repository",
    "savings_by_family",
    "savings_by_dtype",
    "savings_by_codec",
    "savings_by_role",
    "now_by_layer",
    "predicted_against_real",
    "rejected",
)
HIDDEN = {"n_extents", "bytes_predicted", "revision", "message"}
"""Columns that only ``--json`` has: a terminal is narrow."""
MAX_ROWS = 20
"""Rows of a report on a terminal."""


def read_reports(store: Store) -> dict[str, list[Row]]:
    """Rows of every report by name, each with its columns in order.

    Raises
    ------
    StoreNotFoundError, StoreFormatError, CatalogDamagedError, ObjectStoreUnavailableError
        See `open_views`.
    """
    with open_views(store) as connection:
        return {name: rows(connection, name) for name in REPORTS}


def print_reports(reports: dict[str, list[Row]], console: Console) -> None:
    """One table per report that has rows; long ones end after `MAX_ROWS`."""
    for name, found in reports.items():
        if not found:
            continue
        columns = [column for column in found[0] if column not in HIDDEN]
        cells = [[_cell(column, row[column]) for column in columns] for row in found[:MAX_ROWS]]
        titles = [
            column.removeprefix("bytes_").removeprefix("saved_").replace("_", " ")
            for column in columns
        ]
        print_table(console, name.replace("_", " "), titles, cells)
        if len(found) > MAX_ROWS:
            console.print(f"and {len(found) - MAX_ROWS} more, see --json", highlight=False)
        console.print()


def _cell(column: str, value: Any) -> str:
    if column.startswith(("bytes_", "saved_")) or column == "nbytes":
        return human(value)
    if isinstance(value, float):
        return f"{value:.3f}"
    return "" if value is None else f"{value:,}" if type(value) is int else str(value)


def main(
    store: Annotated[str, typer.Option(help="Directory or s3://bucket/prefix.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Tell where the bytes of a store went. Exit code 2: the store cannot be read."""
    with exit_on_error(Console(stderr=True)):
        reports = read_reports(open_store(store))
    if as_json:
        print(json.dumps(reports))
    else:
        print_reports(reports, Console(width=None if sys.stdout.isatty() else 200))


if __name__ == "__main__":
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(main)
    app()
