"""Figures of the tables that have one, drawn like those of the paper."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.planning.tables import Cell, Table

mpl.rcParams.update({"font.size": 8, "axes.spines.top": False, "axes.spines.right": False})

Row = dict[str, Any]


def draw(table: Table, folder: Path) -> None:
    """Write ``<name>.png`` if there is a figure of this table."""
    if table.name not in FIGURES or not table.rows:
        return
    columns, fill = FIGURES[table.name]
    figure = Figure(figsize=(3.6 * columns, 2.8), layout="constrained")
    fill(table, list(np.atleast_1d(figure.subplots(1, columns))))
    figure.savefig(folder / f"{table.name}.png", dpi=100)


def _rows(table: Table) -> list[Row]:
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def _by(rows: Iterable[Row], *columns: str) -> dict[tuple[Cell, ...], list[Row]]:
    """Rows by the values of some columns, in order of first appearance."""
    found: dict[tuple[Cell, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[column] for column in columns), []).append(row)
    return found


def _column(rows: Iterable[Row], name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array([row[name] for row in rows], dtype=np.float64)


def _growth(table: Table, axes: list[Axes]) -> None:
    rows = _rows(table)
    for name in table.columns[3:]:
        planner, codec = name.split(" + ")
        if planner == "flexsplit" or codec not in ("tensorx", "fmpp"):
            axes[0].plot(_column(rows, "models"), _column(rows, name), label=name, lw=1)
    axes[0].set(xlabel="models ingested", ylabel="reduction of all so far", ylim=(0, 1))
    axes[0].legend(fontsize=5, ncols=2)


def _tensors(table: Table, axes: list[Axes]) -> None:
    centres = np.arange(len(table.columns) - 2)
    for row in table.rows:
        if row[1] in ("zipnn", "ulprow"):
            axes[0].plot(centres, np.array(row[2:], float), label=f"{row[0]} + {row[1]}", lw=1)
    axes[0].set(xlabel="reduction", ylabel="share of tensors")
    axes[0].set_xticks(centres, table.columns[2:], rotation=60)
    axes[0].legend(fontsize=6)


def _families(table: Table, axes: list[Axes]) -> None:
    planners = _by(_rows(table), "planner", "codec")
    for i, ((planner, codec), rows) in enumerate(planners.items()):
        x = np.arange(len(rows)) + 0.12 * (i - len(planners) / 2)
        median = _column(rows, "median")
        spread = np.abs([_column(rows, "lowest") - median, _column(rows, "highest") - median])
        axes[0].errorbar(x, median, spread, fmt="o", ms=3, lw=1, label=f"{planner} + {codec}")
    axes[0].set(ylabel="reduction of a model", ylim=(0, 1.02))
    axes[0].set_xticks(range(len(rows)), [f"{row['family']} ({row['models']})" for row in rows])
    axes[0].legend(fontsize=5)


def _similarity(table: Table, axes: list[Axes]) -> None:
    columns = ("recall@1, bits", "reduction", "QPS with preparation")
    dtypes = _by(_rows(table), "dtype")
    for axis, column in zip(axes, columns, strict=True):
        for i, ((dtype,), rows) in enumerate(dtypes.items()):
            y = np.arange(len(rows)) + 0.25 * (i - 1)
            axis.barh(y, _column(rows, column), 0.25, label=dtype)
        axis.set(xlabel=column)
        axis.set_yticks(
            range(len(rows)), [row["search"] for row in rows] if axis is axes[0] else []
        )
        axis.invert_yaxis()
    axes[2].set_xscale("log")
    axes[1].legend(fontsize=6)


def _prediction(table: Table, axes: list[Axes]) -> None:
    rows = _rows(table)
    real = _column(rows, "real")
    for model in table.columns[4:]:
        predicted = _column(rows, model)
        axes[0].plot(1 - real, 1 - predicted, ".", ms=1.5, label=model)
        errors = np.sort(np.abs(real - predicted))
        axes[1].plot(errors, np.arange(1, errors.size + 1) / errors.size, label=model)
    axes[0].plot([0, 1], [0, 1], "k-", lw=0.5)
    axes[0].set(xlabel="real reduction", ylabel="predicted")
    axes[1].set(xlabel="absolute error", ylabel="share of pairs", xlim=(0, 0.1), ylim=(0, 1))
    axes[1].legend(fontsize=6)


def _solvers(table: Table, axes: list[Axes]) -> None:
    everything = _rows(table)
    for style, kind in zip(("o-", "s--"), ("fine-tunes", "checkpoints"), strict=True):
        mine = [row for row in everything if row["group"] == kind]
        for i, ((solver,), rows) in enumerate(_by(mine, "solver").items()):
            line: dict[str, Any] = {"color": f"C{i}", "ms": 3, "lw": 1}
            for axis, column in zip(axes, ("seconds", "reduction"), strict=True):
                x, y = _column(rows, "tensors"), _column(rows, column)
                axis.plot(x, y, style, label=f"{solver}, {kind}", **line)
                axis.set(xlabel="tensors", ylabel=column)
    axes[0].set(yscale="log", ylim=(None, 1e4))  # the legend has a place
    axes[0].legend(fontsize=5, ncols=2)


def _clusters(table: Table, axes: list[Axes]) -> None:
    kinds = {"false": "left as they are", "true": "changed by phase II"}
    sizes, reductions = np.geomspace(1, 512, 19).tolist(), np.linspace(0, 1, 21).tolist()
    for (split,), rows in _by(_rows(table), "split").items():
        label = kinds[str(split)]
        axes[0].hist(_column(rows, "tensors"), sizes, alpha=0.6, label=label)
        axes[1].hist(_column(rows, "before"), reductions, alpha=0.6, label=label)
        if split == "true":
            axes[2].plot(_column(rows, "before"), _column(rows, "after"), ".", ms=3)
    axes[0].set(xlabel="tensors in a cluster of phase I", ylabel="clusters", xscale="log")
    axes[1].set(xlabel="reduction after phase I")
    axes[1].legend(fontsize=6)
    axes[2].plot([0, 1], [0, 1], "k-", lw=0.5)
    axes[2].set(xlabel="reduction after phase I", ylabel="after phase II")


def _traps(table: Table, axes: list[Axes]) -> None:
    planners = _by(_rows(table), "planner")
    for i, ((planner,), rows) in enumerate(planners.items()):
        y = np.arange(len(rows)) + 0.25 * (i - 1)
        axes[0].barh(y, _column(rows, "reduction"), 0.25, label=planner)
    axes[0].set_yticks(range(len(rows)), [row["hub"] for row in rows])
    axes[0].set(xlabel="reduction", xlim=(0, 1))
    axes[0].invert_yaxis()
    axes[0].legend(fontsize=6)


FIGURES: Final[dict[str, tuple[int, Callable[[Table, list[Axes]], None]]]] = {
    "growth": (1, _growth),
    "tensors": (1, _tensors),
    "families": (1, _families),
    "similarity": (3, _similarity),
    "prediction_pairs": (2, _prediction),
    "solvers": (2, _solvers),
    "clusters": (3, _clusters),
    "traps": (1, _traps),
}
"""By table: how many plots side by side, and what fills them."""
