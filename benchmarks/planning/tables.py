"""Results as tables: CSV files, and Markdown between the markers of a page."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import TypeAlias

Cell: TypeAlias = str | int | float
"""Floats are shares or seconds; they are rounded to four places. NaN: no value."""

_MARKED = re.compile(r"(<!-- table (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


@dataclass(frozen=True)
class Table:
    """A table with a name, which is also that of its file."""

    name: str
    columns: tuple[str, ...]
    rows: Sequence[Sequence[Cell]]

    def write(self, folder: Path) -> None:
        """Write ``<name>.csv``."""
        with (folder / f"{self.name}.csv").open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(self.columns)
            writer.writerows(map(_texts, self.rows))

    def markdown(self) -> str:
        """Return it for a page: first column to the left, the others to the right."""
        lines = [self.columns, ("---", *["---:"] * (len(self.columns) - 1))]
        lines += [tuple(_texts(row)) for row in self.rows]
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _texts(row: Iterable[Cell]) -> list[str]:
    return [_text(cell) for cell in row]


def _text(cell: Cell) -> str:
    if not isinstance(cell, float):
        return str(cell)
    if isnan(cell):
        return "–"
    return f"{cell:.4f}" if abs(cell) < 100 else f"{cell:.0f}"


def fill(page: str, tables: Iterable[Table]) -> str:
    """Put tables where ``<!-- table NAME -->`` … ``<!-- end -->`` stand.

    Places whose table is not among `tables` stay as they are.

    Raises
    ------
    KeyError
        A table has no place in the page, though it is one to show.
    """
    by_name = {table.name: table for table in tables}

    def replaced(match: re.Match[str]) -> str:
        table = by_name.get(match[2])
        return match[0] if table is None else f"{match[1]}{table.markdown()}{match[3]}"

    return _MARKED.sub(replaced, page)
