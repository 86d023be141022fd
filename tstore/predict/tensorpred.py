"""TensorPred: from the share of differing bits to the size of a delta (TStore, §4.3)."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

MIN_PAIRS = 8
"""With fewer measured pairs, four coefficients say more about the pairs than about the codec."""

FOLDS = 5
_GRID = np.linspace(0.0, 0.5, 1025)
"""At p = 0.5 bits differ like coin flips; beyond it nothing gets worse."""


@dataclass(frozen=True)
class FitReport:
    """How far predictions were from measured ratios, for pairs left out of the fit.

    Attributes
    ----------
    n : int
        Measured pairs.
    r : float
        Pearson correlation of predicted and measured ratio; 0 when either is constant.
    mae, p50, p90, p99 : float
        Mean and percentiles of the absolute error, in stored/raw.
    """

    n: int
    r: float
    mae: float
    p50: float
    p90: float
    p99: float


@dataclass(frozen=True)
class TensorPred:
    """Equation (3) for one dtype and codec: ``R = alpha p + beta tau + gamma p tau + epsilon``.

    Attributes
    ----------
    dtype, codec : str
        What the predictor was made for.
    alpha, beta, gamma, epsilon : float
        Coefficients of the reduction R = 1 - stored/raw, with ``tau = 8 S(p)``, equation (2).
    kind : {"fitted", "prior"}
        Whether the coefficients come from measured pairs.
    p_max : float
        Largest measured distance. Beyond it the fit may not promise less than the prior's bound.
    report : FitReport or None
        None when nothing was measured.
    p_min : float
        Smallest measured distance. Below it the fit may not ask for more than there.
    """

    dtype: str
    codec: str
    alpha: float
    beta: float
    gamma: float
    epsilon: float
    kind: Literal["fitted", "prior"]
    p_max: float
    report: FitReport | None
    p_min: float = 0.0

    def ratio(self, p: NDArray[np.float64]) -> NDArray[np.float64]:
        """Predicted stored/raw for distances `p`, of the same shape.

        In [0, 1] and non-decreasing: equation (3) may bend back, which would make unrelated
        tensors look similar. From p = 0.5 on the value is constant.
        """
        return np.interp(p, _GRID, self._curve)

    @cached_property
    def _curve(self) -> NDArray[np.float64]:
        """Ratios on the grid."""
        coefficients = np.array([self.alpha, self.beta, self.gamma])
        curve = 1.0 - (_features(_GRID) @ coefficients + self.epsilon)
        first = np.searchsorted(_GRID[:-1], self.p_min)  # distances may be estimated above 0.5
        curve[:first] = np.minimum(curve[:first], curve[first])
        unseen = self.p_max + _GRID[1] <= _GRID  # the point just above p_max still serves it
        curve[unseen] = np.maximum(curve[unseen], _binary_entropy(_GRID[unseen]))
        return np.maximum.accumulate(np.clip(curve, 0.0, 1.0))

    def to_json(self) -> dict[str, Any]:
        """Return plain values for ``json.dumps``."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> TensorPred:
        """Return the predictor that `to_json` described."""
        report = values["report"]
        return cls(**{**values, "report": None if report is None else FitReport(**report)})


def _binary_entropy(p: NDArray[np.float64]) -> NDArray[np.float64]:
    """S(p) in bits, with S(0) = S(1) = 0."""
    inside = np.clip(p, np.finfo(np.float64).tiny, 1.0 - np.finfo(np.float64).epsneg)
    entropy: NDArray[np.float64] = -inside * np.log2(inside) - (1 - inside) * np.log2(1 - inside)
    return np.where((p > 0) & (p < 1), entropy, 0.0)


def _features(p: NDArray[np.float64]) -> NDArray[np.float64]:
    """Columns p, tau and p tau of equation (3); shape (n, 3)."""
    tau = 8.0 * _binary_entropy(p)
    return np.column_stack([p, tau, p * tau])


def prior(dtype: str, codec: str) -> TensorPred:
    """Return the predictor to use before anything was measured: stored/raw = S(p).

    No order-0 coder of the differing bits needs more: S is concave, so bits that differ unevenly
    only help. It errs on the side of storing a tensor without a base.
    """
    return TensorPred(dtype, codec, 0.0, -1 / 8, 0.0, 1.0, "prior", 0.5, None)


def fit(dtype: str, codec: str, p: NDArray[np.float64], ratio: NDArray[np.float64]) -> TensorPred:
    """Fit equation (3) to measured pairs, or keep the prior where it predicts better.

    Parameters
    ----------
    dtype, codec : str
        What the pairs were measured for.
    p : float64 (n,)
        Estimated distances of the pairs.
    ratio : float64 (n,)
        Measured stored/raw of the deltas.

    Returns
    -------
    TensorPred
        Fitted to all pairs, with the errors of a 5-fold cross-validation. The prior, with its
        errors on the same pairs, when those are smaller; without a report when n < MIN_PAIRS.
    """
    from sklearn.model_selection import KFold  # takes seconds to import; only a fit needs it

    fallback = prior(dtype, codec)
    if p.size < MIN_PAIRS:
        return fallback
    blank = replace(fallback, kind="fitted", p_min=float(p.min()), p_max=float(p.max()))
    left_out = np.empty_like(ratio)
    for train, test in KFold(FOLDS, shuffle=True, random_state=0).split(p):
        left_out[test] = _solve(blank, p[train], ratio[train]).ratio(p[test])
    report, prior_report = _compare(left_out, ratio), _compare(fallback.ratio(p), ratio)
    if prior_report.mae < report.mae:
        return replace(fallback, report=prior_report)
    return replace(_solve(blank, p, ratio), report=report)


def _solve(blank: TensorPred, p: NDArray[np.float64], ratio: NDArray[np.float64]) -> TensorPred:
    """Return `blank` with the least-squares coefficients of the given pairs."""
    from sklearn.linear_model import LinearRegression

    model = LinearRegression().fit(_features(p), 1.0 - ratio)
    alpha, beta, gamma = map(float, model.coef_)
    epsilon = float(model.intercept_)
    return replace(blank, alpha=alpha, beta=beta, gamma=gamma, epsilon=epsilon)


def _compare(predicted: NDArray[np.float64], measured: NDArray[np.float64]) -> FitReport:
    """Errors of predicted against measured ratios."""
    errors = np.abs(predicted - measured)
    varied = min(np.ptp(predicted), np.ptp(measured)) > 0
    r = float(np.corrcoef(predicted, measured)[0, 1]) if varied else 0.0
    p50, p90, p99 = map(float, np.percentile(errors, [50, 90, 99]))
    return FitReport(measured.size, r, float(errors.mean()), p50, p90, p99)
