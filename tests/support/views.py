"""Read the views of analytics/ over a store."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import duckdb

import store_views
from tstore.catalog import open_store

ANALYTICS = Path(__file__).parents[2] / "analytics"
Rows = list[dict[str, Any]]


def open_views(store: Path | str) -> AbstractContextManager[duckdb.DuckDBPyConnection]:
    """A connection with the views of a store."""
    return store_views.open_views(open_store(str(store)))


def rows_of(store: Path | str, views: Iterable[str]) -> dict[str, Rows]:
    """Rows of several views, by view."""
    with open_views(store) as connection:
        return {view: store_views.rows(connection, view) for view in views}


def rows(store: Path | str, view: str) -> Rows:
    """Rows of one view."""
    return rows_of(store, [view])[view]
