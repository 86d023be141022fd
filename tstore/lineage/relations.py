"""How near models are to one another, over all places that they share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tstore.lineage.models import Occurrences
from tstore.lineage.places import Place

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Relations:
    """Sums over the places of each pair of models, (n, n) each.

    Attributes
    ----------
    compared : float64
        Bytes of the row's model with a counterpart in the column's that can be compared.
    identical : float64
        Bytes of those that are bit-identical.
    near : float64
        Bytes of those whose counterpart is near (`near_limit`).
    n_identical : float64
        Tensors with an identical counterpart.
    differing : float64
        Sum of bytes times share of differing bits.
    leading : float64
        The same with the share of differing leading bits.
    """

    compared: Floats
    identical: Floats
    near: Floats
    n_identical: Floats
    differing: Floats
    leading: Floats

    @property
    def share(self) -> Floats:
        """Byte-weighted mean share of differing bits; infinite where nothing is comparable."""
        return weighted_mean(self.differing, self.compared)

    @property
    def leading_share(self) -> Floats:
        """The same of leading bits."""
        return weighted_mean(self.leading, self.compared)


def near_limit(dtype: str) -> float:
    """Share of differing bits from which on tensors are strangers.

    A quarter for 16 bits (ZipLLM takes 4 of 16), and half-way between a fine-tune (0.3) and an
    unrelated model (0.42) for 32: their low mantissa bits are noise after a few steps.
    """
    return 0.36 if dtype in ("F32", "F64", "I32", "I64", "U32", "U64") else 0.25


def relate(found: Occurrences, places: Iterable[Place]) -> Relations:
    """Add up the places; of several tensors of a model in one place, the nearest counts."""
    n = len(found.models)
    sums = Relations(*(np.zeros((n, n)) for _ in range(6)))
    for place in places:
        models = found.model[place.at]
        nearest = np.where(np.isnan(place.share), np.inf, place.share)
        limit = near_limit(found.dtypes[found.place[place.at[0]]])
        for row, (target, model) in enumerate(
            zip(place.targets, models[place.targets], strict=True)
        ):
            best = np.lexsort((nearest[row], models))
            first = best[np.flatnonzero(np.diff(models[best], prepend=-1))]
            first = first[np.isfinite(nearest[row, first])]
            others, nbytes = models[first], found.nbytes[place.at[target]]
            share = nearest[row, first]
            same = found.tensor[place.at[first]] == found.tensor[place.at[target]]
            sums.compared[model, others] += nbytes
            sums.identical[model, others] += nbytes * same
            sums.n_identical[model, others] += same
            sums.near[model, others] += nbytes * (share <= limit)
            sums.differing[model, others] += nbytes * share
            sums.leading[model, others] += nbytes * place.leading[row, first]
    return sums


def weighted_mean(total: Floats, weight: Floats) -> Floats:
    """Weighted sums divided by their weights; infinite where there is no weight."""
    mean: Floats = np.divide(total, weight, out=np.full(total.shape, np.inf), where=weight > 0)
    return mean
