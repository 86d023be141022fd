"""Bytes and tables for people; programs read the Parquet or ``--json``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import typer
from rich.console import Console
from rich.table import Table


def human(nbytes: float) -> str:
    """Bytes with a decimal unit."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(nbytes) < 1000:
            return f"{nbytes:,.0f} {unit}" if unit == "B" else f"{nbytes:,.1f} {unit}"
        nbytes /= 1000
    return f"{nbytes:,.1f} TB"


_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?", re.IGNORECASE)
_SHARE = re.compile(r"(\d+(?:\.\d+)?)(%?)")


def parse_nbytes(text: str) -> int:
    """Bytes of a size such as ``50GiB`` or ``800 MB``; `typer.BadParameter` if it is none."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise typer.BadParameter(f"expected a size such as 50GiB or 800MB, found {text!r}")
    number, unit, binary = match.groups()
    return round(float(number) * (_BINARY if binary else _UNITS)[unit.upper()])


def parse_share(text: str) -> float:
    """A share such as ``2%`` or ``0.02``; `typer.BadParameter` if it is none."""
    match = _SHARE.fullmatch(text.strip())
    share = float(match[1]) / (100 if match[2] else 1) if match else None
    if share is None or share > 1:
        raise typer.BadParameter(f"expected a share such as 2% or 0.02, found {text!r}")
    return share


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
