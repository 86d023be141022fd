"""Answers of ``tstore similar``: the models that are nearest to another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tstore.catalog import Store
from tstore.lineage.models import Model
from tstore.lineage.opened import Opened, opened
from tstore.lineage.relations import Relations, relate


@dataclass(frozen=True)
class TensorMatch:
    """A tensor and its nearest counterpart in another model."""

    name: str
    dtype: str
    nbytes: int
    other: str
    counterpart: str
    share: float


@dataclass(frozen=True)
class Neighbour:
    """A model that has tensors in common with another.

    Attributes
    ----------
    model : str
    compared, near : float
        Share of the bytes with a counterpart of the same kind, and with one that is near.
    identical : float
        Share of the tensors that are bit-identical there.
    distance : float
        Byte-weighted mean share of differing bits.
    """

    model: str
    compared: float
    near: float
    identical: float
    distance: float


def find_similar(
    store: Store, repo: str, revision: str | None = None, *, tensors: bool = False
) -> tuple[dict[str, list[Neighbour]], list[TensorMatch]]:
    """Nearest models of each model of a repository, by the catalog alone.

    Parameters
    ----------
    store : Store
    repo : str
    revision : str, optional
    tensors : bool
        Whether to match the tensors of each model with those of its nearest neighbour.

    Returns
    -------
    neighbours : dict of str to list of Neighbour
        By model, the nearest first.
    matches : list of TensorMatch

    Raises
    ------
    RepoNotFoundError, RevisionNotFoundError
    """
    with opened(store) as view:
        targets = view.of_repo(repo, revision)
        models = view.found.models
        sums = relate(view.found, view.places(np.ones_like(targets), targets))
        shown = np.flatnonzero(targets).tolist()
        neighbours = {models[i].name: _neighbours(models, sums, i) for i in shown}
        matches = list[TensorMatch]()
        if tensors:
            index = {model.name: i for i, model in enumerate(models)}
            for name, found in neighbours.items():
                if found:
                    matches += _match(view, index[name], index[found[0].model])
    return neighbours, matches


def _neighbours(models: Sequence[Model], sums: Relations, i: int) -> list[Neighbour]:
    order = np.lexsort((np.arange(len(models)), sums.share[i]))
    return [
        Neighbour(
            model=models[j].name,
            compared=float(sums.compared[i, j]) / models[i].nbytes,
            near=float(sums.near[i, j]) / models[i].nbytes,
            identical=float(sums.n_identical[i, j]) / models[i].n_tensors,
            distance=float(sums.share[i, j]),
        )
        for j in order
        if j != i and sums.compared[i, j] > 0
    ]


def _match(view: Opened, model: int, other: int) -> Iterator[TensorMatch]:
    found = view.found
    wanted, targets = (np.zeros(len(found.models), dtype=np.bool_) for _ in range(2))
    wanted[[model, other]] = targets[model] = True
    for place in view.places(wanted, targets):
        there = np.flatnonzero(found.model[place.at] == other)
        for row, target in enumerate(place.targets):
            share = np.where(np.isnan(place.share[row, there]), np.inf, place.share[row, there])
            if np.isfinite(share).any():
                at, best = place.at[target], there[share.argmin()]
                yield TensorMatch(
                    name=found.names[at],
                    dtype=found.dtypes[found.place[at]],
                    nbytes=int(found.nbytes[at]),
                    other=found.models[other].name,
                    counterpart=found.names[place.at[best]],
                    share=float(share.min()),
                )
