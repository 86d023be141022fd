"""One group to plan: its tensors, what they would cost, and what a plan of it is.

A group is all tensors of one dtype and shape, so that costs compare as stored/raw ratios. A tensor
is stored whole (and may then be a base at no further cost) or as a delta of a tensor that is stored
whole: chains have depth 1. That makes the choice of bases a facility location problem (TStore,
§3.2). Planners are functions from a `Problem` to an `Assignment`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

STANDALONE = -1


class Costs(Protocol):
    """Predicted cost of deltas within a group, by ids (see `Problem`)."""

    def ratios(self, targets: Ints, bases: Ints) -> Floats:
        """Stored/raw of each target as a delta of each base, (m, n); its own column means nothing.

        The caller keeps blocks small; the same pair gives the same bits in any block.
        """

    def pairs(self, targets: Ints, bases: Ints) -> Floats:
        """The same for each target and the base beside it, (m,); the same bits as `ratios`."""

    def near(self, targets: Ints, bases: Ints, count: int) -> Ints:
        """Likely cheapest bases of each target, (m, count) ids, -1 where there are no more.

        May miss some, and says nothing of costs: for groups whose pairs are too many to price.
        """


@dataclass(frozen=True)
class Problem:
    """What is known about the tensors of one dtype and shape.

    Tensors have ids: ``0 .. k-1`` are those that the store already holds whole (bases at no
    further cost, they never change), ``k .. k+n-1`` the new ones in order of arrival.

    Attributes
    ----------
    names : tuple of str
        Tensor id string of each, (k + n,): what they are called in the catalog.
    n_stored : int
        k.
    standalone : float64 (n,)
        Predicted stored/raw of the new tensors without a base.
    costs : Costs
    min_gain : float
        A delta must be at least this much below the standalone ratio.
    """

    names: tuple[str, ...]
    n_stored: int
    standalone: Floats
    costs: Costs
    min_gain: float


@dataclass(frozen=True)
class Assignment:
    """How each new tensor of a group is stored.

    Attributes
    ----------
    base : int64 (n,)
        Id of the base; -1 for standalone.
    ratio : float64 (n,)
        Predicted stored/raw of that choice.
    """

    base: Ints
    ratio: Floats


Planner: TypeAlias = Callable[[Problem], Assignment]
