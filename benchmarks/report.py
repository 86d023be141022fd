"""Measurements as tables on the terminal and as one CSV file per kind of CPU."""

from __future__ import annotations

import csv
import platform
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.measure import Result
from benchmarks.targets import Check

HEADER = ("table", "data", "contestant", "quantity", "value")
RESULTS = Path(__file__).with_name("results")

Row = tuple[str, str, str, str, float]


@dataclass
class Report:
    """Prints what it is told, and keeps it for the CSV."""

    rows: list[Row] = field(default_factory=list)

    def race(self, data: str, results: dict[str, Result]) -> None:
        """Tell ratio and speeds of contestants on one tensor."""
        lines = []
        for name, result in results.items():
            shown = [result.encode_mb_s, result.decode_mb_s] if result.timed else []
            lines.append((name, f"{result.ratio:.4f}", *(f"{speed:.0f}" for speed in shown)))
            self._keep("one tensor", data, name, result.quantities())
        _print(f"{data}: one tensor", ("", "stored/raw", "encode MB/s", "decode MB/s"), lines)

    def sizes(
        self, data: str, repositories: dict[str, dict[str, float]], raw: dict[str, int]
    ) -> None:
        """Tell stored/raw of whole repositories, each tensor coded by itself."""
        names = list(next(iter(repositories.values())))
        lines = []
        for name in names:
            shares = {key: row[name] / raw[key] for key, row in repositories.items()}
            for key, share in shares.items():
                self._keep("size", f"{data}: {key}", name, {"ratio": share})
            together = sum(row[name] for row in repositories.values()) / sum(raw.values())
            lines.append((name, f"{together:.4f}", *(f"{share:.4f}" for share in shares.values())))
        numbers = [f"({i})" for i in range(1, len(raw) + 1)]
        title = f"{data}: stored/raw, each tensor by itself"
        for number, key in zip(numbers, raw, strict=True):
            title += f"\n  {number} {key}, {raw[key] / 1e6:.1f} MB"
        _print(title, ("", "all", *numbers), lines)

    def quantities(self, table: str, data: str, values: dict[str, dict[str, float]]) -> None:
        """Tell other numbers by contestant."""
        for name, row in values.items():
            self._keep(table, data, name, row)
        names = list(next(iter(values.values()), {}))
        lines = [(name, *(f"{row[key]:.2f}" for key in names)) for name, row in values.items()]
        _print(f"{table}: {data}", ("", *names), lines)

    def checks(self, found: Iterable[Check]) -> None:
        """Tell which targets hold."""
        lines = []
        for check in found:
            self._keep("target", check.data, check.codec, {check.what: check.found})
            sign = "≥" if check.at_least else "≤"
            against = f"to {check.peer}" if check.peer else ""
            lines.append((
                check.codec, check.data, check.what, against, f"{check.found:.4g}",
                f"{sign} {check.limit:g}", "holds" if check.holds else "MISSED",
            ))  # fmt: skip
        _print("targets", ("", "", "", "", "found", "asked", ""), lines)

    def write(self) -> Path:
        """Write everything as CSV and return where."""
        RESULTS.mkdir(exist_ok=True)
        path = RESULTS / f"{re.sub('[^a-z0-9]+', '_', cpu_name().lower()).strip('_')}.csv"
        with path.open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(HEADER)
            writer.writerows((*row[:4], f"{row[4]:.5g}") for row in self.rows)
        return path

    def _keep(self, table: str, data: str, contestant: str, values: dict[str, float]) -> None:
        self.rows += [(table, data, contestant, key, value) for key, value in values.items()]


def cpu_name() -> str:
    """Return what the CPU calls itself."""
    try:
        found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    except FileNotFoundError:
        found = None
    return found[1] if found else platform.processor() or platform.machine()


def _print(title: str, header: Sequence[str], lines: Sequence[Sequence[str]]) -> None:
    table = [header, *lines]
    columns = max(map(len, table))
    padded = [[*line, *[""] * (columns - len(line))] for line in table]
    widths = [max(len(line[i]) for line in padded) for i in range(columns)]
    print(f"\n{title}")
    for line in padded:
        cells = [cell.rjust(width) for cell, width in zip(line, widths, strict=True)]
        cells[0] = line[0].ljust(widths[0])
        print(("  " + "  ".join(cells)).rstrip(), flush=True)
