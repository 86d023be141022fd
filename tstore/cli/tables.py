"""Bytes and tables for people; programs read the Parquet or ``--json``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.table import Table


def human(nbytes: float) -> str:
    """Bytes with a decimal unit."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(nbytes) < 1000:
            return f"{nbytes:,.0f} {unit}" if unit == "B" else f"{nbytes:,.1f} {unit}"
        nbytes /= 1000
    return f"{nbytes:,.1f} TB"


def table(title: str | None, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A plain table: first column left, the others right."""
    result = Table(
        title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0)
    )
    for number, column in enumerate(columns):
        result.add_column(column, justify="right" if number else "left", overflow="fold")
    for row in rows:
        result.add_row(*row)
    return result
