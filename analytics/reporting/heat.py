"""Which base would be best, tensor by tensor (TStore, Figure 6): from sketches and TensorPred."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
from numpy.typing import NDArray

from store_views import Row, rows
from tstore.catalog import Store, keys
from tstore.errors import ObjectNotFoundError
from tstore.predict.tensorpred import TensorPred
from tstore.settings import SketchSettings
from tstore.sketch.distances import group_distances
from tstore.sketch.layout import SketchLayout

MAPS = 8
COLUMNS = 12
TENSORS = 160

_TARGETS = f"""
SELECT repo, family, any_value(codec) AS codec
FROM current_extents JOIN families USING (repo)
WHERE base_number IS NOT NULL
GROUP BY repo, family ORDER BY sum(nbytes) DESC, repo LIMIT {MAPS}
"""
_RELATIVES = f"""
SELECT f.repo FROM families AS f JOIN arrivals USING (repo)
JOIN now_by_repository AS n USING (repo)
WHERE f.family = ? AND f.repo <> ? ORDER BY n.bytes_in < 0.2 * max(n.bytes_in) OVER (), place
LIMIT {COLUMNS}
"""
_TENSORS = """
SELECT e.repo, min(name) AS name, min(layer) AS layer, tensor_id, e.dtype,
       CAST(shape AS VARCHAR) AS shape, any_value(e.nbytes) AS nbytes,
       any_value(e.blob_nbytes) / any_value(e.nbytes) AS reached,
       any_value(origins.repo) AS chosen, any_value(standalone_ratio) AS alone
FROM current_extents AS e JOIN fingerprints USING (tensor_id)
LEFT JOIN origins ON origins.number = e.base_number
WHERE e.repo IN (SELECT unnest(?)) AND sketch IS NOT NULL
GROUP BY e.repo, tensor_id, e.dtype, shape
ORDER BY e.repo, tensor_id
"""
_SKETCHES = """
SELECT tensor_id, sketch FROM fingerprints
WHERE tensor_id IN (SELECT unnest(?)) AND sketch IS NOT NULL ORDER BY tensor_id
"""

Sketches = dict[str, NDArray[np.int16]]


def heat_maps(store: Store, connection: duckdb.DuckDBPyConnection) -> list[Row]:
    """Predicted ratio of the tensors of some repositories, as deltas of their relatives.

    Returns
    -------
    list of dict
        ``repo``, ``columns`` (repositories, the first called ``alone``), ``rows`` (tensor names in
        layer order), ``values`` (rows × columns, None where there is no tensor of the shape),
        ``chosen`` (column of the base that is used, or None) and ``reached`` (the real ratio).
    """
    targets = rows(connection, _TARGETS)
    relatives = {
        target["repo"]: [
            row["repo"] for row in rows(connection, _RELATIVES, target["family"], target["repo"])
        ]
        for target in targets
    }
    wanted = sorted({*relatives, *(repo for some in relatives.values() for repo in some)})
    tensors = defaultdict(list)
    for row in rows(connection, _TENSORS, wanted):
        tensors[row["repo"]].append(row)
    sketches = _sketches(connection, tensors)
    predictors = _Predictors(store)
    maps = []
    for target in targets:
        repo = target["repo"]
        mine = [
            row for row in sorted(tensors[repo], key=_layer_order) if predictors.of(row["dtype"])
        ]
        others = {name: tensors[name] for name in relatives[repo] if tensors[name]}
        predict = _Prediction(sketches, predictors, store.sketch)
        maps.append({"repo": repo, **_heat_map(mine[:TENSORS], others, predict)})
    maps.sort(key=lambda found: -len(found["columns"]))
    return [found for found in maps if found["rows"]]


def _sketches(connection: duckdb.DuckDBPyConnection, tensors: dict[str, list[Row]]) -> Sketches:
    ids = sorted({row["tensor_id"] for found in tensors.values() for row in found})
    table = connection.sql(_SKETCHES, params=[ids]).to_arrow_table()
    numbers = table["sketch"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
    names = table["tensor_id"].to_pylist()
    return dict(zip(names, numbers.reshape(len(names), -1), strict=True)) if names else {}


class _Predictors:
    """The store's predictors, read when they are first asked for."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, TensorPred | None] = {}

    def of(self, dtype: str) -> TensorPred | None:
        """The predictor of a dtype, for any delta codec; None if the store has none."""
        if dtype not in self._known:
            folder = keys.tensorpred(dtype, "").removesuffix(".json")
            names = [info.key for info in self._store.objects.list(folder)]
            self._known[dtype] = self._read(names[0]) if names else None
        return self._known[dtype]

    def _read(self, key: str) -> TensorPred | None:
        try:
            return TensorPred.from_json(json.loads(self._store.objects.get(key)))
        except ObjectNotFoundError:  # a refit replaces it
            return None


@dataclass(frozen=True)
class _Prediction:
    """What predicted ratios are made of."""

    sketches: Sketches
    predictors: _Predictors
    settings: SketchSettings

    def best(self, row: Row, same: list[Row]) -> float | None:
        """Lowest ratio of a tensor as a delta of one of these of its kind; 0 if it is among them."""
        predictor = self.predictors.of(row["dtype"])
        if not same or predictor is None:
            return None
        if row["tensor_id"] in (other["tensor_id"] for other in same):
            return 0.0
        layout = SketchLayout.of(row["dtype"], self.settings)
        own = self.sketches[row["tensor_id"]][None]
        theirs = np.stack([self.sketches[other["tensor_id"]] for other in same])
        distances = group_distances(own, theirs, layout, row["nbytes"])
        return float(predictor.ratio(distances, row["nbytes"]).min())


def _heat_map(mine: list[Row], others: dict[str, list[Row]], predict: _Prediction) -> Row:
    columns = [*others]
    kinds: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    for name, found in others.items():
        for row in found:
            kinds[name, row["dtype"], row["shape"]].append(row)
    values = []
    for row in mine:
        same = (kinds.get((name, row["dtype"], row["shape"]), []) for name in columns)
        values.append([_rounded(row["alone"]), *(_rounded(predict.best(row, s)) for s in same)])
    return {
        "columns": ["alone", *columns],
        "rows": [row["name"] for row in mine],
        "values": values,
        "chosen": [
            columns.index(r["chosen"]) + 1 if r["chosen"] in columns else None for r in mine
        ],
        "reached": [_rounded(row["reached"]) for row in mine],
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _layer_order(row: Row) -> tuple[int, list[Any]]:
    """Embeddings, then layers by number, then what comes after them."""
    parts = re.split(r"(\d+)", row["name"])
    natural = [int(part) if number % 2 else part for number, part in enumerate(parts)]
    place = 0 if row["layer"] == "embedding" else 1 if len(parts) > 1 else 2
    return place, natural
