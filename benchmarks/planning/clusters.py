"""What FlexSplit makes of each group: its clusters, and how far from the optimum (Fig. 15, 16)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.planning.bench import Bench, Plan
from benchmarks.planning.hub import title
from benchmarks.planning.solvers import first_base, ilp
from benchmarks.planning.tables import Table
from tstore.plan.flexsplit import arrive, assign, replan, split
from tstore.plan.problem import STANDALONE, Assignment, Problem
from tstore.sketch.groups import SketchGroup

MIN_MEMBERS = 3
"""Smaller groups leave nothing to choose."""


@dataclass(frozen=True)
class Cluster:
    """A base and its deltas as phase I leaves them, and what phase II makes of them.

    Attributes
    ----------
    group : str
    size : int
    before, after : float
        Predicted reduction of its tensors; the base counts as stored alone.
    split : bool
        Whether phase II stores any of them otherwise.
    """

    group: str
    size: int
    before: float
    after: float
    split: bool


def find_clusters(bench: Bench) -> list[Cluster]:
    """Clusters of phase I in all groups that leave a choice, for the default codec."""
    found = []
    for group in _groups(bench):
        problem = bench.problem(group, bench.codec)
        first = arrive(problem)
        second = split(problem, first)
        found += _clusters(title(group), first, second)
    return found


def _clusters(name: str, first: Assignment, second: Assignment) -> list[Cluster]:
    """Clusters of a plan of new tensors only."""
    members = np.where(first.base == STANDALONE, np.arange(first.base.size), first.base)
    return [
        Cluster(
            name,
            int(rows.size),
            1 - float(first.ratio[rows].mean()),
            1 - float(second.ratio[rows].mean()),
            bool((first.base[rows] != second.base[rows]).any()),
        )
        for rows in (np.flatnonzero(members == base) for base in np.unique(members))
    ]


def clusters_table(found: list[Cluster]) -> Table:
    """Every cluster."""
    rows = [(c.group, c.size, c.before, c.after, str(c.split).lower()) for c in found]
    return Table("clusters", ("group", "tensors", "before", "after", "split"), rows)


def splits_table(found: list[Cluster]) -> Table:
    """Clusters that phase II leaves alone beside those that it changes."""
    rows = []
    for name, changed in (("left as they are", False), ("changed by phase II", True)):
        some = [cluster for cluster in found if cluster.split is changed]
        if not some:
            continue
        gains = np.array([cluster.after - cluster.before for cluster in some])
        rows.append((
            name,
            len(some),
            len(some) / len(found),
            int(np.median([cluster.size for cluster in some])),
            max(cluster.size for cluster in some),
            float(np.median([cluster.before for cluster in some])),
            float(np.median([cluster.after for cluster in some])),
            float((gains > 0).mean()),
        ))  # fmt: skip
    columns = (
        "clusters", "number", "share", "median size", "largest", "median before", "median after",
        "improved",
    )  # fmt: skip
    return Table("splits", columns, rows)


def optimum_table(bench: Bench) -> Table:
    """Predicted stored bytes of each group over the optimum, by planner, and all together.

    ``model by model``: each model is planned when it arrives and earlier plans stay. ``replanned``:
    from scratch, once all are there.
    """
    names = ("first base", "model by model", "phase I", "phases I and II", "replanned", "optimum")
    by_model = bench.plan_by_model(bench.hub, bench.codec, assign)
    groups = _groups(bench)
    totals = np.zeros((len(groups), len(names)))
    for i, group in enumerate(groups):
        problem = bench.problem(group, bench.codec)
        planners = (first_base, arrive, assign, replan, ilp)
        first, *others = (float(planner(problem).ratio.sum()) for planner in planners)
        totals[i] = np.array([first, _total(problem, by_model), *others]) * group.nbytes
    rows: list[tuple[str | int | float, ...]] = [
        (title(group), len(group.ids), *_row(total))
        for group, total in zip(groups, totals, strict=True)
    ]
    rows.append(("all", sum(len(group.ids) for group in groups), *_row(totals.sum(axis=0))))
    return Table("optimum", ("group", "tensors", "optimum MB", *names[:-1]), rows)


def _row(totals: np.ndarray[tuple[int], np.dtype[np.float64]]) -> tuple[float, ...]:
    """The optimum in megabytes, and what the others take beyond it, as shares of it."""
    return (totals[-1] / 1e6, *(totals[:-1] / totals[-1] - 1))


def _total(problem: Problem, plan: Plan) -> float:
    """Sum of the predicted ratios of a plan."""
    ids = {name: i for i, name in enumerate(problem.names)}
    total = 0.0
    for i, name in enumerate(problem.names):
        base = plan[name]
        if base is None:
            total += problem.standalone[i]
        else:
            total += problem.costs.ratios(np.array([i]), np.array([ids[base]]))[0, 0]
    return float(total)


def _groups(bench: Bench) -> list[SketchGroup]:
    return [g for g in bench.groups_of(*bench.dtypes) if len(g.ids) >= MIN_MEMBERS]
