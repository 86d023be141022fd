"""Costs of deltas as the sketches predict them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tstore.plan.neighbours import NeighbourIndex
from tstore.plan.problem import Floats, Ints
from tstore.predict.tensorpred import TensorPred
from tstore.sketch.distances import group_distances, pair_distances
from tstore.sketch.layout import SketchLayout


@dataclass
class SketchCosts:
    """TensorPred over TensorSketch.

    Attributes
    ----------
    sketches : int16 (k + n, d * w)
        By id.
    layout : SketchLayout
    nbytes : int64 (k + n,)
        Size of each tensor.
    predictor : TensorPred
    """

    sketches: NDArray[np.int16]
    layout: SketchLayout
    nbytes: Ints
    predictor: TensorPred
    _index: NeighbourIndex | None = field(default=None, repr=False)

    def ratios(self, targets: Ints, bases: Ints) -> Floats:
        """See `Costs.ratios`."""
        nbytes = self.nbytes[targets]
        p = group_distances(self.sketches[targets], self.sketches[bases], self.layout, nbytes)
        return self.predictor.ratio(p, nbytes[:, None])

    def pairs(self, targets: Ints, bases: Ints) -> Floats:
        """See `Costs.pairs`."""
        nbytes = self.nbytes[targets]
        p = pair_distances(self.sketches, targets, bases, self.layout, nbytes)
        return self.predictor.ratio(p, nbytes)

    def near(self, targets: Ints, bases: Ints, count: int) -> Ints:
        """See `Costs.near`."""
        if self._index is None or not self._index.extend_to(bases):
            self._index = NeighbourIndex(self.sketches, self.layout)
            self._index.extend_to(bases)
        return self._index.nearest(targets, count)
