"""From the share of differing bits to the size of a delta: three models (TStore, §4.3).

A model gets, for any number of pairs of one dtype, the share p of differing bits of each plane
group (see `tstore.sketch.layout`) and says what a delta would take, as stored/raw. All are
non-decreasing in each p on [0, 0.5] and constant beyond: at 0.5 bits differ like coin flips.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tstore.predict.kernels import add_interpolated

Floats: TypeAlias = NDArray[np.float64]
Sizes: TypeAlias = int | NDArray[np.int64]
"""Bytes of the tensors: one number, or an array that fits the predictions."""

GRID = np.linspace(0.0, 0.5, 2049)
"""Where curves are tabulated."""


class Model(Protocol):
    """Predicts sizes of deltas of one dtype and codec."""

    def ratio(self, p: Floats, nbytes: Sizes) -> Floats:
        """Return stored/raw, not clipped: p (groups, ...) to (...)."""


def entropy(p: Floats) -> Floats:
    """Binary entropy S(p) in bits, with S(0) = S(1) = 0."""
    inside = np.clip(p, np.finfo(np.float64).tiny, 1.0 - np.finfo(np.float64).epsneg)
    bits: Floats = -inside * np.log2(inside) - (1 - inside) * np.log2(1 - inside)
    return np.where((p > 0) & (p < 1), bits, 0.0)


def overall(p: Floats, shares: Floats) -> Floats:
    """Share of all differing bits, (groups, ...) to (...)."""
    total: Floats = shares[0] * p[0]  # in the same order for any shape: the same bits
    for share, one in zip(shares[1:], p[1:], strict=True):
        total = total + share * one
    return total


def _sum_of_curves(curves: Floats, p: Floats) -> Floats:
    """Sum over the groups of ``curves[g]`` at ``p[g]``."""
    total = np.zeros(p.shape[1:])
    for curve, share in zip(curves, p, strict=True):
        add_interpolated(curve, np.ascontiguousarray(share).ravel(), total.ravel())
    return total


def load_regression() -> None:
    """Import what fitting needs, which takes seconds: a job does it while its workers start."""
    import sklearn.linear_model
    import sklearn.model_selection  # noqa: F401


@dataclass(frozen=True)
class Prior:
    """What to believe before anything was measured: the entropy of independent bit flips.

    No order-0 coder of the differing bits needs more, since S is concave: bits of a group that
    differ unevenly only help. It errs on the side of storing a tensor without a base.

    Attributes
    ----------
    shares : tuple of float
        Share of each plane group in the bits of an element.
    """

    shares: tuple[float, ...]

    def ratio(self, p: Floats, nbytes: Sizes) -> Floats:
        """See `Model.ratio`."""
        return _sum_of_curves(self._curves, p)

    @cached_property
    def _curves(self) -> Floats:
        return np.outer(self.shares, entropy(GRID))


@dataclass(frozen=True)
class Equation3:
    """The paper's model: ``R = alpha p + beta tau + gamma p tau + epsilon``, ``tau = 8 S(p)``.

    It knows the overall p only. R = 1 - stored/raw may bend back towards both ends, which would
    make unrelated tensors look similar and near ones costly: so the curve is made monotone, and
    below the nearest measured pair it asks for no more than there.

    Attributes
    ----------
    shares : tuple of float
        Share of each plane group in the bits of an element.
    alpha, beta, gamma, epsilon : float
        Coefficients of equation (3).
    p_min : float
        Smallest measured p.
    """

    shares: tuple[float, ...]
    alpha: float
    beta: float
    gamma: float
    epsilon: float
    p_min: float = 0.0

    def ratio(self, p: Floats, nbytes: Sizes) -> Floats:
        """See `Model.ratio`."""
        return _sum_of_curves(self._curve[None], overall(p, np.array(self.shares))[None])

    @cached_property
    def _curve(self) -> Floats:
        coefficients = np.array([self.alpha, self.beta, self.gamma])
        curve = 1.0 - (self.features(GRID) @ coefficients + self.epsilon)
        first = np.searchsorted(GRID[:-1], self.p_min)  # distances may be estimated above 0.5
        curve[:first] = np.minimum(curve[:first], curve[first])
        return np.maximum.accumulate(curve)

    @staticmethod
    def features(p: Floats) -> Floats:
        """Columns p, tau and p tau; (n,) to (n, 3)."""
        tau = 8.0 * entropy(p)
        return np.column_stack([p, tau, p * tau])

    @classmethod
    def fit(cls, p: Floats, ratio: Floats, shares: tuple[float, ...]) -> Equation3:
        """Least squares over measured pairs: p (groups, n), ratio (n,)."""
        from sklearn.linear_model import LinearRegression

        together = overall(p, np.array(shares))
        model = LinearRegression().fit(cls.features(together), 1.0 - ratio)
        alpha, beta, gamma, epsilon = _rounded([*model.coef_, model.intercept_])
        return cls(shares, alpha, beta, gamma, epsilon, float(together.min()))


@dataclass(frozen=True)
class PlaneGroups:
    """Bits of different significance cost differently: a curve per plane group.

    ``stored/raw = sum over groups (linear p + entropic S(p)) + overhead / nbytes + constant``
    with p cut at 0.5 and no coefficient of p negative, so that it cannot fall as p grows. Where
    the bits differ decides the size: three flipped exponent bits cost more than three flipped
    mantissa bits, and flips of the low mantissa tell nothing once they are coin flips.

    Attributes
    ----------
    linear, entropic : tuple of float
        Coefficients, one per plane group.
    overhead : float
        Bytes per tensor: headers and code tables.
    constant : float
    """

    linear: tuple[float, ...]
    entropic: tuple[float, ...]
    overhead: float
    constant: float

    def ratio(self, p: Floats, nbytes: Sizes) -> Floats:
        """See `Model.ratio`."""
        return _sum_of_curves(self._curves, p) + (self.constant + self.overhead / nbytes)

    @cached_property
    def _curves(self) -> Floats:
        return np.outer(self.linear, GRID) + np.outer(self.entropic, entropy(GRID))

    @classmethod
    def fit(cls, p: Floats, ratio: Floats, nbytes: NDArray[np.int64]) -> PlaneGroups:
        """Non-negative robust regression over measured pairs: p (groups, n), ratio, nbytes (n,).

        A few tensors are special in ways that no distance shows, such as values with few bits:
        their weight is reduced (Huber), or they would tilt the curves for all others.
        """
        from sklearn.linear_model import LinearRegression

        cut = np.minimum(p, 0.5)
        features = np.column_stack([*cut, *entropy(cut), _KIB / nbytes])
        model, weights = LinearRegression(positive=True), np.ones(ratio.size)
        for _ in range(_REWEIGHTED):
            model.fit(features, ratio, sample_weight=weights)
            errors = np.abs(model.predict(features) - ratio)
            weights = 1 / np.maximum(1, errors / max(1.5 * np.median(errors), 1e-4))
        groups = len(p)
        coefficients = _rounded([*model.coef_, model.intercept_])
        return cls(
            linear=tuple(coefficients[:groups]),
            entropic=tuple(coefficients[groups : 2 * groups]),
            overhead=coefficients[-2] * _KIB,
            constant=coefficients[-1],
        )


def _rounded(coefficients: list[float]) -> list[float]:
    """Six decimals: the last bits of a fit differ from one processor to another, plans must not."""
    return [round(float(c), 6) for c in coefficients]


_REWEIGHTED = 4
"""Least squares once, and three times with the weights of Huber's loss."""
_KIB = 1024
"""Scale of the overhead column, so that it is of the size of the others."""
