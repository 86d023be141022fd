"""Storage as the hub grows, by planner and codec (TStore, Fig. 11)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np

from benchmarks.planning.bench import CODECS, Bench, Plan, arriving, solve
from benchmarks.planning.hub import Hub
from benchmarks.planning.lineage import card, zipllm
from benchmarks.planning.sizes import ALONE
from benchmarks.planning.solvers import first_base
from benchmarks.planning.tables import Cell, Table
from tstore.plan.flexsplit import assign, replan

BITX = "bitx"
"""ZipLLM's own codec."""
FLEXSPLIT, REPLANNED = "flexsplit", "flexsplit, replanned"
_BINS = np.linspace(0.0, 1.0, 11)


@dataclass(frozen=True)
class Line:
    """One planner with one codec.

    Attributes
    ----------
    planner, codec : str
    plan : Plan
        Of the whole hub.
    stored : mapping of str to int
        Real bytes of each tensor under that plan.
    growth : tuple of int
        Real bytes of the store after each model.
    """

    planner: str
    codec: str
    plan: Plan
    stored: Mapping[str, int]
    growth: tuple[int, ...]


def lines(bench: Bench) -> list[Line]:
    """Plan the hub in every way and encode what the plans ask for."""
    hub = bench.hub
    by_name = zipllm(hub, bench.distances)
    planners = {"card": card(hub), "zipllm": by_name, "first base": first_base}
    found = [_settled(bench, "alone", ALONE, dict.fromkeys(hub.arrivals))]
    found.append(_settled(bench, "zipllm", BITX, bench.plan(hub, "tensorx", by_name)))
    for codec in CODECS:
        for name, planner in planners.items():
            found.append(_settled(bench, name, codec, bench.plan(hub, codec, planner)))
        found.append(_settled(bench, FLEXSPLIT, codec, bench.plan_by_model(hub, codec, assign)))
        found.append(_replanned(bench, codec))
    return found


def _settled(bench: Bench, planner: str, codec: str, plan: Plan) -> Line:
    """A plan that never changes what it has stored."""
    stored = bench.stored(plan, codec)
    per_model = [sum(stored[name] for name in ids) for ids in arriving(bench.hub).values()]
    return Line(planner, codec, plan, stored, tuple(accumulate(per_model)))


def _replanned(bench: Bench, codec: str) -> Line:
    """All tensors that are there are planned anew after each model."""
    hub, plan, growth = bench.hub, dict[str, str | None](), []
    for ids in arriving(hub).values():
        plan.update(dict.fromkeys(ids))
        touched = {(g.dtype, g.shape) for g in hub.groups_of(ids)}
        for group in hub.groups_of(plan):
            if (group.dtype, group.shape) in touched:
                plan.update(solve(bench.problem(group, codec), replan))
        stored = bench.stored(plan, codec)
        growth.append(sum(stored.values()))
    return Line(REPLANNED, codec, plan, stored, tuple(growth))


def growth_table(hub: Hub, found: Iterable[Line]) -> Table:
    """Reduction of all models so far, after each (Fig. 11a)."""
    found = list(found)
    raw = list(accumulate(map(hub.nbytes, hub.contents)))
    rows: list[tuple[Cell, ...]] = [
        (i + 1, model, raw[i] / 1e6, *(1 - line.growth[i] / raw[i] for line in found))
        for i, model in enumerate(hub.contents)
    ]
    names = (f"{line.planner} + {line.codec}" for line in found)
    return Table("growth", ("models", "last", "raw MB", *names), rows)


def totals_table(hub: Hub, found: Iterable[Line]) -> Table:
    """Reduction of the whole hub, and of each dtype that makes up a hundredth of it."""
    raw: Counter[str] = Counter()
    for names in hub.contents.values():
        for name in names.values():
            raw[hub.tensors[name].dtype] += hub.tensors[name].nbytes
    dtypes = [dtype for dtype in sorted(raw) if raw[dtype] >= raw.total() / 100]
    rows: list[tuple[Cell, ...]] = []
    for line in found:
        stored: Counter[str] = Counter()
        for name, nbytes in line.stored.items():
            stored[hub.tensors[name].dtype] += nbytes
        together = 1 - stored.total() / raw.total()
        each = (1 - stored[dtype] / raw[dtype] for dtype in dtypes)
        deltas = sum(base is not None for base in line.plan.values())
        rows.append((line.planner, line.codec, together, *each, deltas))
    return Table("reduction", ("planner", "codec", "reduction", *dtypes, "deltas"), rows)


def tensors_table(hub: Hub, found: Iterable[Line]) -> Table:
    """Which share of the sketched tensors is reduced by how much (Fig. 11b)."""
    sketched = [hub.tensors[name] for group in hub.groups for name in group.ids]
    rows = []
    for line in found:
        reductions = [1 - line.stored[tensor.id] / tensor.nbytes for tensor in sketched]
        counts, _ = np.histogram(np.clip(reductions, 0.0, 1.0), _BINS)
        rows.append((line.planner, line.codec, *(counts / counts.sum())))
    ranges = (f"{low:.0%}–{high:.0%}" for low, high in pairwise(_BINS))
    return Table("tensors", ("planner", "codec", *ranges), rows)


def families_table(hub: Hub, found: Iterable[Line]) -> Table:
    """Reduction of models by family, with the default codec (Fig. 11c).

    A family has the name of the organisation of its first ancestor.
    """
    families: dict[str, list[str]] = {}
    for model in hub.contents:
        families.setdefault(hub.root(model).split("/")[0], []).append(model)
    ids = arriving(hub)
    rows = []
    for family, models in families.items():
        raw = np.array([hub.nbytes(model) for model in models])
        for line in found:
            stored = np.array([sum(line.stored[name] for name in ids[m]) for m in models])
            each = 1 - stored / raw
            together = 1 - stored.sum() / raw.sum()
            spread = each.min(), float(np.median(each)), each.max()
            rows.append((family, len(models), line.planner, line.codec, together, *spread))
    columns = ("family", "models", "planner", "codec", "reduction", "lowest", "median", "highest")
    return Table("families", columns, rows)
