"""Which pairs to measure before the predictor is fitted."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def spread_over_range(p: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Pick pairs evenly over the range of distances, however unevenly they lie in it.

    A hub has many unrelated pairs and few related ones; a regression needs both. The range is cut
    into `count` bins of equal width. The pair nearest to each bin's centre comes first, then the
    second nearest of each bin, and so on until `count` are chosen, near distances before far.

    Parameters
    ----------
    p : float64 (n,)
        Distances of the candidate pairs.
    count : int
        Most pairs to pick.

    Returns
    -------
    int64 (<= count,)
        Indices into `p`, sorted and unique; all of them when n <= count.
    """
    if p.size <= count:
        return np.arange(p.size)
    low, width = p.min(), np.ptp(p) / count
    position = (p - low) / width if width > 0 else np.zeros(p.size)
    bins = np.minimum(position.astype(np.int64), count - 1)
    order = np.lexsort((np.abs(position - bins - 0.5), bins))
    starts = np.searchsorted(bins[order], bins[order])
    turn = np.arange(p.size) - starts  # 0 for the first of each bin
    chosen: NDArray[np.int64] = np.sort(order[np.lexsort((bins[order], turn))[:count]])
    return chosen
