"""Read the views of analytics/ over a store."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import duckdb

ANALYTICS = Path(__file__).parents[2] / "analytics"
VIEWS = ANALYTICS / "views.sql"
Rows = list[dict[str, Any]]


def open_views(store: Path) -> duckdb.DuckDBPyConnection:
    """A connection with the views of a store; the caller's to close."""
    connection = duckdb.connect()
    connection.execute("SET VARIABLE store = ?", [str(store)])
    connection.execute(VIEWS.read_text(encoding="utf-8"))
    return connection


def rows_of(store: Path, views: Iterable[str]) -> dict[str, Rows]:
    """Rows of several views, by view."""
    with open_views(store) as connection:
        relations = {view: connection.table(view) for view in views}
        return {
            view: [dict(zip(relation.columns, row, strict=True)) for row in relation.fetchall()]
            for view, relation in relations.items()
        }


def rows(store: Path, view: str) -> Rows:
    """Rows of one view."""
    return rows_of(store, [view])[view]
