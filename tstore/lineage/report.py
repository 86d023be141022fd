"""Answers of ``tstore lineage``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tstore.catalog import Store
from tstore.errors import LineageTooLargeError
from tstore.lineage.claims import read_claims
from tstore.lineage.copies import find_copies
from tstore.lineage.family import MIN_COMPARED, Lineage, infer_lineage
from tstore.lineage.models import Model
from tstore.lineage.opened import Opened, opened
from tstore.lineage.relations import Relations, relate

MAX_MODELS = 2048
"""Models compared with one another; with more, only the nearest of one repository are."""


@dataclass(frozen=True)
class Parent:
    """A candidate for the parent of a model.

    Attributes
    ----------
    model : str
    inferred : bool
        Whether it is taken for a parent; else it is only near.
    same_content_as : tuple of str
        Models that are bit-identical to it.
    identical : float
        Share of the tensors that are bit-identical there.
    nearest : float
        Share of the tensors that are nearer to this than to the other candidates.
    distance : float or None
        Byte-weighted mean share of differing bits; None where too little is comparable, as
        between dtypes.
    """

    model: str
    inferred: bool
    same_content_as: tuple[str, ...]
    identical: float
    nearest: float
    distance: float | None


@dataclass(frozen=True)
class Origin:
    """What content and card say of where a model comes from.

    Attributes
    ----------
    model : str
    same_content_as : tuple of str
    copy : str or None
        The same model in another dtype.
    parents : tuple of Parent
        Ranked; those inferred come first.
    undirected : bool
        One relative, of which the model may be the parent as well.
    claims : dict of str to list of str
        Base models by the file that names them.
    verdict : str
        agree, ancestor (an earlier one than the parent), contradict, unknown (the store has
        no such repository), unproven (content says nothing), silent (no claim).
    """

    model: str
    same_content_as: tuple[str, ...]
    copy: str | None
    parents: tuple[Parent, ...]
    undirected: bool
    claims: dict[str, list[str]]
    verdict: str


def find_lineage(
    store: Store, repo: str | None = None, revision: str | None = None
) -> list[Origin]:
    """Origin of the models of a repository, or of all.

    Raises
    ------
    RepoNotFoundError, RevisionNotFoundError
    LineageTooLargeError
        There are more than `MAX_MODELS` models, and no repository is named.
    """
    with opened(store) as view:
        models = view.found.models
        asked = np.ones(len(models), dtype=np.bool_)
        if repo is not None:
            asked = view.of_repo(repo, revision)
        wanted = _comparable(view, asked)
        sums = relate(view.found, view.places(wanted, wanted))
        lineage = infer_lineage(models, sums, find_copies(view.found))
        shown = np.flatnonzero(asked)
        votes = _votes(view, lineage, shown)
        return [_origin(view, sums, lineage, votes, int(i)) for i in shown]


def _comparable(view: Opened, asked: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Models to compare with one another: all, or so many as are near to those asked for."""
    n = asked.size
    if n <= MAX_MODELS:
        return np.ones(n, dtype=np.bool_)
    if asked.all():
        raise LineageTooLargeError(
            f"expected at most {MAX_MODELS} models to compare all with all, found {n}; name a "
            "repository"
        )
    sums = relate(view.found, view.places(np.ones(n, dtype=np.bool_), asked))
    nearest = np.argsort(sums.leading_share[asked].min(axis=0), kind="stable")
    wanted = asked.copy()
    wanted[nearest[:MAX_MODELS]] = True
    return wanted


def _votes(view: Opened, lineage: Lineage, shown: NDArray[np.int64]) -> dict[tuple[int, int], int]:
    """How many tensors of each shown model are nearest to which of its candidates."""
    found = view.found
    wanted, targets = (np.zeros(len(found.models), dtype=np.bool_) for _ in range(2))
    targets[shown] = wanted[shown] = True
    wanted[[p for i in shown for p in lineage.parents[i]]] = True
    votes: dict[tuple[int, int], int] = {}
    for place in view.places(wanted, targets):
        models = found.model[place.at]
        for row, target in enumerate(place.targets):
            model = int(models[target])
            share = np.where(np.isnan(place.share[row]), np.inf, place.share[row])
            apart = [share[models == p].min(initial=np.inf) for p in lineage.parents[model]]
            if apart and np.isfinite(min(apart)):
                winner = lineage.parents[model][int(np.argmin(apart))]
                votes[model, winner] = votes.get((model, winner), 0) + 1
    return votes


def _origin(
    view: Opened,
    sums: Relations,
    lineage: Lineage,
    votes: dict[tuple[int, int], int],
    i: int,
) -> Origin:
    models = view.found.models

    def names(indices: Sequence[int]) -> tuple[str, ...]:
        return tuple(models[j].name for j in indices)

    parents = tuple(
        Parent(
            model=models[j].name,
            inferred=rank < lineage.n_parents[i],
            same_content_as=names(lineage.same[j]),
            identical=float(sums.n_identical[i, j]) / models[i].n_tensors,
            nearest=votes.get((i, j), 0) / models[i].n_tensors,
            distance=_distance(models, sums, i, j),
        )
        for rank, j in enumerate(lineage.parents[i])
    )
    claims = read_claims(view.store, view.connection, models[i])
    copy = lineage.copy[i]
    return Origin(
        model=models[i].name,
        same_content_as=names(lineage.same[i]),
        copy=None if copy is None else models[copy].name,
        parents=parents,
        undirected=lineage.undirected[i],
        claims=claims,
        verdict=_verdict(models, lineage, claims, i),
    )


def _distance(models: Sequence[Model], sums: Relations, i: int, j: int) -> float | None:
    least = MIN_COMPARED * min(models[i].nbytes, models[j].nbytes)
    enough = max(sums.compared[i, j], sums.compared[j, i]) >= least
    return float(sums.share[i, j]) if enough else None


def _verdict(
    models: Sequence[Model], lineage: Lineage, claims: dict[str, list[str]], i: int
) -> str:
    """Whether what the files claim fits what the content says."""
    claimed = {name for of_file in claims.values() for name in of_file}
    if not claimed:
        return "silent"
    named = {j for j, model in enumerate(models) if {model.name, model.repo} & claimed}
    if not named:
        return "unknown"
    direct = set(lineage.parents[i][: lineage.n_parents[i]])
    kin = {*direct, *(k for j in direct for k in lineage.same[j]), *lineage.same[i]}
    if named & kin or (lineage.undirected[i] and named & set(lineage.parents[i])):
        return "agree"
    if named & lineage.ancestors(i):
        return "ancestor"
    return "contradict" if lineage.parents[i] else "unproven"
