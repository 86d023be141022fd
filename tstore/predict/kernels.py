"""The compiled loop behind the predictor."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tstore_codecs.kernels.compiled import kernels_in

kernel = kernels_in(Path(__file__).parent)


@kernel
def add_interpolated(
    curve: NDArray[np.float64], p: NDArray[np.float64], total: NDArray[np.float64]
) -> None:
    """Add to each of `total` the value of a tabulated curve, linear between its points.

    Parameters
    ----------
    curve : float64 (k,)
        Values at k evenly spaced points of [0, 0.5].
    p : float64 (n,)
        Where to read it, not negative; beyond 0.5 the last value counts.
    total : float64 (n,)
        Added to in place.
    """
    last = curve.size - 1
    scale = 2.0 * last
    for i in range(p.size):
        x = p[i] * scale
        if x < last:
            left = int(x)
            total[i] += curve[left] + (x - left) * (curve[left + 1] - curve[left])
        else:
            total[i] += curve[last]
