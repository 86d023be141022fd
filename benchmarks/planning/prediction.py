"""Predicted against real sizes of deltas, and what must be refused (TStore, Fig. 13)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.planning.bench import CODECS, Bench
from benchmarks.planning.hub import Hub
from benchmarks.planning.sizes import ALONE
from benchmarks.planning.tables import Cell, Table
from tstore.plan.problem import Floats
from tstore.predict.models import Equation3, Model, PlaneGroups, overall
from tstore.predict.tensorpred import compare, fit

PAIRS = 400
"""Pairs per dtype, spread over the whole range of distances."""
NEGATIVES = 200
"""Pairs per dtype and kind that no planner should choose."""


MODELS = ("equation 3", "plane groups")


@dataclass(frozen=True)
class Judged:
    """Predictions for pairs that were left out of the fit.

    Attributes
    ----------
    dtype, codec : str
    p : float64 (n,)
        Estimated share of differing bits.
    real : float64 (n,)
        Stored/raw.
    predicted : mapping of str to float64 (n,)
        The same as each of `MODELS` has it.
    """

    dtype: str
    codec: str
    p: Floats
    real: Floats
    predicted: Mapping[str, Floats]


def judge_predictions(bench: Bench) -> list[Judged]:
    """Fit each model on every other pair and judge it on the rest."""
    found = []
    for dtype in bench.dtypes:
        pairs = bench.choose_pairs(dtype, PAIRS)
        rows = np.arange(len(pairs))
        for codec in CODECS:
            measured = bench.measure(pairs, codec)
            known, left_out = measured.take(rows[::2]), measured.take(rows[1::2])
            shares = bench.shares(dtype)
            fitted = fit(dtype, codec, shares, known)
            equation = Equation3.fit(known.p, known.ratio, shares)
            planes = PlaneGroups.fit(known.p, known.ratio, known.nbytes)
            models: tuple[Model, Model] = (equation, planes)
            predicted = {
                name: replace(fitted, model=model).ratio(left_out.p, left_out.nbytes)
                for name, model in zip(MODELS, models, strict=True)
            }
            p = overall(left_out.p, np.array(shares))
            found.append(Judged(dtype, codec, p, left_out.ratio, predicted))
    return found


def errors_table(found: list[Judged]) -> Table:
    """Errors of each model, dtype and codec."""
    rows = []
    for one in found:
        for model, predicted in one.predicted.items():
            report = compare(predicted, one.real)
            errors = report.r, report.mae, report.p50, report.p90, report.p99
            rows.append((one.dtype, one.codec, model, report.n, *errors))
    columns = ("dtype", "codec", "model", "pairs", "r", "MAE", "P50", "P90", "P99")
    return Table("prediction", columns, rows)


def pairs_table(found: list[Judged]) -> Table:
    """Every judged pair."""
    rows: list[tuple[Cell, ...]] = [
        (one.dtype, one.codec, *map(float, numbers))
        for one in found
        for numbers in zip(one.p, one.real, *one.predicted.values(), strict=True)
    ]
    return Table("prediction_pairs", ("dtype", "codec", "p", "real", *MODELS), rows)


def refusals_table(bench: Bench) -> Table:
    """Pairs that look alike only by shape: how many are refused, and how many wrongly taken.

    A pair is taken when its delta is predicted to be `min_gain` below the target alone. That is
    wrong if it is not really smaller.
    """
    rows = []
    kinds = {"unrelated model": _unrelated(bench.hub), "another layer": _other_layers(bench.hub)}
    for kind, pairs in kinds.items():
        for dtype in bench.dtypes:
            chosen = _spread([pair for pair in pairs if bench.hub.tensors[pair[0]].dtype == dtype])
            for codec in CODECS:
                if chosen:
                    taken = [pair for pair in chosen if _taken(bench, pair, codec)]
                    wrong = sum(not _smaller(bench, pair, codec) for pair in taken)
                    refused = len(chosen) - len(taken)
                    rows.append((kind, dtype, codec, len(chosen), refused, len(taken), wrong))
    columns = ("pairs of", "dtype", "codec", "pairs", "refused", "taken", "taken wrongly")
    return Table("refusals", columns, rows)


Names = tuple[str, str]
"""Ids of a target and a base."""


def strangers(hub: Hub) -> list[str]:
    """Models known to have no relative in the hub; none where no lineage is known at all."""
    if not any(hub.parents.values()):
        return []
    roots = [hub.root(model) for model in hub.contents]
    return [model for model in hub.contents if roots.count(hub.root(model)) == 1]


def _unrelated(hub: Hub) -> list[Names]:
    """Tensors of strangers against all of the others."""
    alone = set(strangers(hub))
    return [
        (target, base)
        for group in hub.groups
        for target in group.ids
        for base in group.ids
        if hub.arrivals[target][0] in alone and hub.arrivals[base][0] not in alone
    ]


def _other_layers(hub: Hub) -> list[Names]:
    """Tensors against those of other names in the same model."""
    return [
        (target, base)
        for group in hub.groups
        for i, target in enumerate(group.ids)
        for base in group.ids[:i]
        if hub.arrivals[target][0] == hub.arrivals[base][0]
    ]


def _spread(pairs: list[Names]) -> list[Names]:
    """About `NEGATIVES` of them, evenly spaced."""
    step = max(len(pairs) // NEGATIVES, 1)
    return pairs[::step]


def _taken(bench: Bench, pair: Names, codec: str) -> bool:
    (group,) = bench.hub.groups_of(pair)
    problem = bench.problem(group, codec)
    ratio = problem.costs.ratios(np.array([0]), np.array([1]))[0, 0]
    return bool(ratio <= problem.standalone[0] - problem.min_gain)


def _smaller(bench: Bench, pair: Names, codec: str) -> bool:
    alone, delta = bench.sizes.measured([(pair[0], None, ALONE), (*pair, codec)])
    return delta < alone
