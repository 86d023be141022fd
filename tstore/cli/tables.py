"""Bytes and tables for people; programs read the Parquet or ``--json``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table


def human(nbytes: float) -> str:
    """Bytes with a decimal unit."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(nbytes) < 1000:
            return f"{nbytes:,.0f} {unit}" if unit == "B" else f"{nbytes:,.1f} {unit}"
        nbytes /= 1000
    return f"{nbytes:,.1f} TB"


def print_table(
    console: Console,
    title: str | None,
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
) -> None:
    """A plain table: first column left, the others right; cut, never folded, where it is narrow."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    if title is not None:
        console.print(title, highlight=False, markup=False, soft_wrap=True)
    console.print(table)


def plural(count: int, noun: str) -> str:
    """``1 file``, ``2 files``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
