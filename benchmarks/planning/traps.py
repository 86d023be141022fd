"""Hubs on which pairing by lineage, name or order fails."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from math import nan

from benchmarks.planning.bench import Bench, arriving
from benchmarks.planning.hub import Hub
from benchmarks.planning.lineage import zipllm
from benchmarks.planning.prediction import strangers
from benchmarks.planning.solvers import first_base
from benchmarks.planning.tables import Table
from tstore.plan.flexsplit import assign
from tstore.plan.problem import Planner

PLAIN, MERGES = "plain", "merges of two parents"


def traps_table(bench: Bench) -> Table:
    """Real reduction of the models in question, with the default codec, for each trap.

    Also what is left of the saving in the plain hub, where the same models are judged. Empty
    where the hub's lineage is not known.
    """
    planners: dict[str, Callable[[Hub], Planner]] = {
        "flexsplit": lambda hub: assign,
        "zipllm": lambda hub: zipllm(hub, bench.distances),
        "first base": lambda hub: first_base,
    }
    rows = []
    for name, planner_for in planners.items():
        plain = 0.0
        for trap, (hub, models) in traps(bench.hub).items():
            plan = bench.plan(hub, bench.codec, planner_for(hub))
            stored = bench.stored(plan, bench.codec)
            ids = arriving(hub)
            nbytes = sum(stored[tensor_id] for model in models for tensor_id in ids[model])
            saving = 1 - nbytes / sum(map(hub.nbytes, models))
            plain = saving if trap == PLAIN else plain
            kept = saving / plain if trap != MERGES else nan
            rows.append((trap, name, len(hub.contents), len(models), saving, kept))
    columns = ("hub", "planner", "models", "judged", "reduction", "of plain")
    return Table("traps", columns, rows)


def traps(hub: Hub) -> dict[str, tuple[Hub, list[str]]]:
    """Hubs by the name of the trap, each with the models whose reduction counts."""
    unrelated = strangers(hub)
    if not unrelated:
        return {}
    merged = [model for model in hub.contents if len(_known_parents(hub, model)) > 1]
    models = [model for model in hub.contents if model not in {*unrelated, *merged}]
    plain = hub.only(models)
    found = {
        PLAIN: (plain, models),
        "an unrelated model last": (hub.only([*models, *unrelated]), models),
        "an unrelated model first": (hub.only([*unrelated, *models]), models),
        "all tensors renamed": (_renamed(plain), models),
        "tensors in reverse order": (_reversed(plain), models),
    }
    if merged:
        found[MERGES] = (hub.only([*models, *merged]), merged)
    return found


def _known_parents(hub: Hub, model: str) -> list[str]:
    return [parent for parent in hub.parents.get(model, ()) if parent in hub.contents]


def _renamed(hub: Hub) -> Hub:
    """Every tensor under a name that no other model uses."""

    def renamed(model: str, name: str) -> str:
        return hashlib.sha256(f"{model}/{name}".encode()).hexdigest()[:16]

    return hub.with_contents({
        model: {renamed(model, name): tensor_id for name, tensor_id in names.items()}
        for model, names in hub.contents.items()
    })  # fmt: skip


def _reversed(hub: Hub) -> Hub:
    """The tensors of each file in reverse order."""
    return hub.with_contents(
        {model: dict(reversed(list(names.items()))) for model, names in hub.contents.items()}
    )
