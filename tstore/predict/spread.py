"""Picking points evenly over a range, however unevenly they lie in it."""

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


BINS = 24
"""Parts of the range of distances of which a fit should know something."""


def cover_range(
    p: NDArray[np.float64], known: NDArray[np.float64], count: int
) -> NDArray[np.int64]:
    """Pick pairs from those parts of the range of distances that known pairs leave open.

    A store may have seen nothing but unrelated tensors until the first fine-tune arrives.

    Parameters
    ----------
    p : float64 (n,)
        Distances of the candidate pairs.
    known : float64 (k,)
        Distances of pairs that were measured before.
    count : int
        Pairs to pick when nothing is known; each open part gets its share of it.

    Returns
    -------
    int64 (<= count,)
        Indices into `p`, sorted and unique.
    """
    if not known.size or not p.size:
        return spread_over_range(p, count)
    low, width = p.min(), max(np.ptp(p) / BINS, np.finfo(np.float64).tiny)
    part = np.clip((p - low) / width, 0, BINS - 1).astype(np.int64)
    inside = known[(known >= low) & (known <= p.max())]
    have = np.bincount(np.minimum((inside - low) / width, BINS - 1).astype(np.int64), None, BINS)
    per_part = -(-count // BINS)
    open_ = np.flatnonzero(have[part] < per_part / 2)
    n_open = np.unique(part[open_]).size
    return open_[spread_over_range(p[open_], per_part * n_open)] if n_open else open_
