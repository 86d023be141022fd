"""TensorPred: predicted size of a delta, fitted on pairs of this hub (TStore, §4.3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tstore.predict.models import Equation3, Floats, Model, PlaneGroups, Prior, Sizes, overall

MIN_PAIRS = 8
"""With fewer measured pairs, coefficients say more about the pairs than about the codec."""

FOLDS = 5
MARGIN = 0.02
"""How far outside the range of measured p a fit is trusted."""
_MODELS: dict[str, Any] = {
    "plane-groups": PlaneGroups,
    "equation-3": Equation3,
    "prior": Prior,
}
"""By the name that a stored predictor gives; the first is taken where two err alike."""


@dataclass(frozen=True)
class Measured:
    """Pairs of one dtype that a codec really encoded.

    Attributes
    ----------
    p : float64 (groups, n)
        Share of differing bits per plane group, from the sketches.
    ratio : float64 (n,)
        Measured stored/raw.
    nbytes : int64 (n,)
        Raw bytes that were encoded.
    """

    p: Floats
    ratio: Floats
    nbytes: NDArray[np.int64]

    def take(self, rows: NDArray[np.int64]) -> Measured:
        """Return some of the pairs."""
        return Measured(self.p[:, rows], self.ratio[rows], self.nbytes[rows])


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
    """The predictor of one dtype and codec.

    Attributes
    ----------
    dtype, codec : str
        What it was made for.
    shares : tuple of float
        Share of each plane group in the bits of an element.
    model : Model
        The best of those tried.
    p_min, p_max : float
        Smallest and largest measured p. Well below the one no model may ask for more than the
        prior, well beyond the other none may promise less.
    reports : dict of str to FitReport
        Errors of each model that was tried, by its name; empty when nothing was measured.
    """

    dtype: str
    codec: str
    shares: tuple[float, ...]
    model: Model
    p_min: float
    p_max: float
    reports: dict[str, FitReport]

    @property
    def name(self) -> str:
        """Name of the model: plane-groups, equation-3 or prior."""
        return next(name for name, kind in _MODELS.items() if isinstance(self.model, kind))

    @property
    def report(self) -> FitReport | None:
        """Errors of the chosen model."""
        return self.reports.get(self.name)

    def ratio(self, p: Floats, nbytes: Sizes) -> Floats:
        """Predict stored/raw of deltas.

        Parameters
        ----------
        p : float64 (groups, ...)
            Share of differing bits per plane group.
        nbytes : int or int64 array
            Size of the tensors.

        Returns
        -------
        float64 (...)
            In [0, 1], and non-decreasing in each p.
        """
        ratio = self.model.ratio(p, nbytes)
        together = overall(p, np.array(self.shares))
        for limit, unseen in (
            (np.minimum, together < self.p_min - MARGIN),
            (np.maximum, together > self.p_max + MARGIN),
        ):
            if unseen.any():
                ratio[unseen] = limit(ratio[unseen], self._prior.ratio(p[:, unseen], nbytes))
        return np.clip(ratio, 0.0, 1.0)

    @cached_property
    def _prior(self) -> Prior:
        return Prior(self.shares)

    def to_json(self) -> dict[str, Any]:
        """Return plain values for ``json.dumps``."""
        return {**asdict(self), "name": self.name}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> TensorPred:
        """Return the predictor that `to_json` described.

        Raises
        ------
        ValueError
            `values` are not from there.
        """
        try:
            return cls._from_json(values)
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            raise ValueError(f"expected the values of a predictor, found {values!r}") from error

    @classmethod
    def _from_json(cls, values: dict[str, Any]) -> TensorPred:
        fields = {k: tuple(v) if isinstance(v, list) else v for k, v in values["model"].items()}
        model: Model = _MODELS[values["name"]](**fields)
        reports = {name: FitReport(**report) for name, report in values["reports"].items()}
        shares = tuple(values["shares"])
        limits = [float(values["p_min"]), float(values["p_max"])]
        if not np.isfinite(np.hstack([*fields.values(), shares, limits]).astype(float)).all():
            raise ValueError(f"expected finite coefficients, found {values!r}")
        model.ratio(np.full((len(shares), 1), 0.1), 1)  # refuses a wrong number of groups
        return cls(
            dtype=values["dtype"],
            codec=values["codec"],
            shares=shares,
            model=model,
            p_min=limits[0],
            p_max=limits[1],
            reports=reports,
        )


def prior(dtype: str, codec: str, shares: tuple[float, ...]) -> TensorPred:
    """Return the predictor to use before anything was measured."""
    return TensorPred(dtype, codec, shares, Prior(shares), 0.0, 1.0, {})


def fit(dtype: str, codec: str, shares: tuple[float, ...], pairs: Measured) -> TensorPred:
    """Fit every model to measured pairs and keep the one that predicts left-out pairs best.

    Returns
    -------
    TensorPred
        Fitted to all pairs, with the errors of a 5-fold cross-validation of each model. The
        prior, without reports, when there are fewer than `MIN_PAIRS`.
    """
    blank = prior(dtype, codec, shares)
    if pairs.ratio.size < MIN_PAIRS:
        return blank
    together = overall(pairs.p, np.array(shares))
    blank = replace(blank, p_min=float(together.min()), p_max=float(together.max()))
    fits: dict[str, Callable[[Measured], Model]] = {
        "plane-groups": lambda some: PlaneGroups.fit(some.p, some.ratio, some.nbytes),
        "equation-3": lambda some: Equation3.fit(some.p, some.ratio, shares),
        "prior": lambda some: Prior(shares),
    }
    reports = {name: _cross_validate(blank, fit_one, pairs) for name, fit_one in fits.items()}
    best = min(reports, key=lambda name: reports[name].mae)
    return replace(blank, model=fits[best](pairs), reports=reports)


def _cross_validate(
    blank: TensorPred, fit_one: Callable[[Measured], Model], pairs: Measured
) -> FitReport:
    """Errors on pairs that the fit did not see."""
    from sklearn.model_selection import KFold

    predicted = np.empty_like(pairs.ratio)
    for train, test in KFold(FOLDS, shuffle=True, random_state=0).split(pairs.ratio):
        model = replace(blank, model=fit_one(pairs.take(train)))
        predicted[test] = model.ratio(pairs.p[:, test], pairs.nbytes[test])
    return compare(predicted, pairs.ratio)


def compare(predicted: Floats, measured: Floats) -> FitReport:
    """Errors of predicted against measured ratios, (n,) each."""
    errors = np.abs(predicted - measured)
    varied = min(np.ptp(predicted), np.ptp(measured)) > 0
    r = float(np.corrcoef(predicted, measured)[0, 1]) if varied else 0.0
    p50, p90, p99 = map(float, np.percentile(errors, [50, 90, 99]))
    return FitReport(measured.size, r, float(errors.mean()), p50, p90, p99)
