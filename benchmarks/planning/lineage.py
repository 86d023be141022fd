"""Planners that go by the lineage of models, as the paper's baselines do (TStore, §6.1)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np

from benchmarks.planning.bits import BitDistances
from benchmarks.planning.hub import Hub
from tstore.plan.problem import STANDALONE, Assignment, Planner, Problem

CARD_SHARE = 0.258
"""Share of models whose lineage is known (TStore, §3.1: of 2.75 million)."""
_BF16_LIMIT = 4 / 16
"""Share of differing bits up to which ZipLLM takes bf16 models for relatives: 4 bits a weight."""
_LIMIT = 0.36
"""The same for other dtypes, which ZipLLM does not have: half-way between a fine-tune (0.3) and
an unrelated model (0.42) in f32."""

MIN_SHARED = 0.5
"""Part of a model's bytes that must have a counterpart for it to be compared with another."""


def zipllm(hub: Hub, distances: BitDistances) -> Planner:
    """ZipLLM: a base model per model, from its card or by bit distance; tensors pair by name.

    A model whose card names an earlier model is based on it. Else all earlier models are compared
    with it, over the tensors of the same name, dtype and shape; the nearest is its base, if it is
    near enough and has most of those tensors.
    """
    base: dict[str, str] = {}
    earlier: list[str] = []
    for model in hub.contents:
        card = hub.cards.get(model)
        found = card if card in earlier else _nearest(hub, distances, model, earlier)
        if found is not None:
            base[model] = found
        earlier.append(model)
    return by_lineage(hub, base)


def card(hub: Hub, share: float = CARD_SHARE) -> Planner:
    """Base models from metadata alone, for the share of models that have any: "Default" there.

    What a model was made from is its card's ``base_model``, or else its true parent. A hash of
    the model's name decides whether that is known.
    """
    by_hash = sorted(hub.contents, key=lambda model: hashlib.sha256(model.encode()).digest())
    with_card = set(by_hash[: round(share * len(by_hash))])
    base: dict[str, str] = {}
    earlier: set[str] = set()
    for model in hub.contents:
        claims = (hub.cards.get(model, ""), *hub.parents.get(model, ()))
        known = [claim for claim in claims if claim in earlier]
        if model in with_card and known:
            base[model] = known[0]
        earlier.add(model)
    return by_lineage(hub, base)


def by_lineage(hub: Hub, base_models: Mapping[str, str]) -> Planner:
    """Each tensor takes the one of the same name in the base model of the model it came with.

    Parameters
    ----------
    hub : Hub
    base_models : mapping of str to str
        Model to an earlier one.

    Returns
    -------
    Planner
        Whatever a delta is predicted to cost, it is used: these planners have no predictor. A
        base that is a delta itself is replaced by its own base.
    """

    def plan(problem: Problem) -> Assignment:
        k = problem.n_stored
        position = {name: i for i, name in enumerate(problem.names)}
        base = np.full(len(problem.names) - k, STANDALONE, dtype=np.int64)
        ratio = problem.standalone.copy()
        for row, tensor_id in enumerate(problem.names[k:]):
            model, name = hub.arrivals[tensor_id]
            wanted = hub.contents.get(base_models.get(model, ""), {}).get(name, "")
            found = position.get(wanted, k + row)
            if found >= k and base[found - k] != STANDALONE:
                found = int(base[found - k])
            if found < k + row:
                base[row] = found
                pair = np.array([k + row]), np.array([found])
                ratio[row] = problem.costs.ratios(*pair)[0, 0]
        return Assignment(base, ratio)

    return plan


def _nearest(hub: Hub, distances: BitDistances, model: str, candidates: list[str]) -> str | None:
    """The candidate of which the smallest share of bits differs, if that is below the limit."""
    best, least = None, np.inf
    for candidate in candidates:
        differing = total = limit = 0.0
        for name, tensor_id in hub.contents[model].items():
            bits = distances.between(tensor_id, hub.contents[candidate].get(name, ""))
            if bits is not None:
                tensor = hub.tensors[tensor_id]
                differing += bits
                total += 8 * tensor.nbytes
                limit += 8 * tensor.nbytes * (_BF16_LIMIT if tensor.dtype == "BF16" else _LIMIT)
        comparable = total >= 8 * MIN_SHARED * hub.nbytes(model)
        if comparable and differing < min(limit, least * total):
            best, least = candidate, differing / total
    return best
