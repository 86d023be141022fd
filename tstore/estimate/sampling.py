"""Which blocks are looked at, and what they say of the whole.

Each dtype is a stratum. Blocks are drawn with a probability proportional to their bytes, at even
steps along the sorted clusters, so that every part of a model has its share of them. The mean of
what the draws say is then an unbiased estimate for the stratum (Hansen and Hurwitz).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from tstore.estimate.clusters import Cluster

CONFIDENCE = 0.95
MIN_DRAWS = 16
"""Draws of each stratum, or it is looked at as a whole if that is less to read."""


@dataclass(frozen=True)
class Draw:
    """A block of all members of a cluster.

    Attributes
    ----------
    cluster : Cluster
    block : int
    weight : float
        Its share in the estimate of its stratum.
    """

    cluster: Cluster
    block: int
    weight: float


@dataclass(frozen=True)
class Stratum:
    """Draws from all clusters of one dtype.

    Attributes
    ----------
    dtype : str
    nbytes : int
        Raw bytes of the clusters.
    draws : tuple of Draw
        In the order of the clusters; their weights sum to 1.
    share : float
        Part of the stratum that is in the sample; 1 if that is all of it.
    """

    dtype: str
    nbytes: int
    draws: tuple[Draw, ...]
    share: float

    @property
    def read_nbytes(self) -> float:
        """Bytes to read: each block once, however often it was drawn."""
        distinct = {(id(draw.cluster), draw.block): draw.cluster for draw in self.draws}
        return sum(cluster.block_nbytes for cluster in distinct.values())


def draw_sample(clusters: Sequence[Cluster], nbytes: float, seed: int) -> list[Stratum]:
    """Draw blocks of about `nbytes` together, each dtype according to its size.

    Parameters
    ----------
    clusters : sequence of Cluster
        Sorted by dtype.
    nbytes : float
        Bytes to read.
    seed : int
        The same seed draws the same blocks.
    """
    rng = np.random.default_rng(seed)
    total = sum(cluster.nbytes for cluster in clusters)
    strata = []
    for dtype, found in groupby(clusters, key=lambda cluster: cluster.dtype):
        members = list(found)
        sizes = np.array([cluster.nbytes for cluster in members], dtype=np.float64)
        blocks = np.array([cluster.block_nbytes for cluster in members])
        all_nbytes = float(np.dot(blocks, [cluster.n_blocks for cluster in members]))
        mean_nbytes = float(np.dot(sizes / sizes.sum(), blocks))
        count = max(round(nbytes * sizes.sum() / total / mean_nbytes), MIN_DRAWS)
        if count * mean_nbytes >= all_nbytes:
            strata.append(_whole(dtype, members))
        else:
            strata.append(_some(dtype, members, sizes, count, rng))
    return strata


def _whole(dtype: str, clusters: list[Cluster]) -> Stratum:
    total = sum(cluster.nbytes for cluster in clusters)
    draws = tuple(
        Draw(cluster, block, cluster.nbytes / cluster.n_blocks / total)
        for cluster in clusters
        for block in range(cluster.n_blocks)
    )
    return Stratum(dtype, total, draws, 1.0)


def _some(
    dtype: str,
    clusters: list[Cluster],
    sizes: NDArray[np.float64],
    count: int,
    rng: np.random.Generator,
) -> Stratum:
    ends = np.cumsum(sizes)
    at = (np.arange(count) + rng.random()) / count * ends[-1]
    index = np.minimum(np.searchsorted(ends, at, side="right"), len(clusters) - 1)
    draws = []
    for place, i in zip(at, index.tolist(), strict=True):
        cluster = clusters[i]
        inside = (place - (ends[i] - sizes[i])) / sizes[i]
        block = min(int(inside * cluster.n_blocks), cluster.n_blocks - 1)
        draws.append(Draw(cluster, block, 1 / count))
    stratum = Stratum(dtype, int(ends[-1]), tuple(draws), 0.0)
    every = sum(cluster.block_nbytes * cluster.n_blocks for cluster in clusters)
    return Stratum(dtype, stratum.nbytes, stratum.draws, stratum.read_nbytes / every)


def mean_and_variance(stratum: Stratum, values: NDArray[np.float64]) -> tuple[float, float]:
    """Estimate for a stratum from what its draws say, and the variance of that estimate.

    Parameters
    ----------
    stratum : Stratum
    values : float64 (draws,)
        Ratios of each draw.

    Notes
    -----
    Draws at even steps miss each other's ground, so neighbours are compared (the estimator of
    successive differences): the variance between far parts of a model is no error of theirs. What
    was looked at as a whole has none.
    """
    weights = np.array([draw.weight for draw in stratum.draws])
    mean = float(np.dot(weights, values))
    if stratum.share >= 1.0 or values.size < 2:
        return mean, 0.0
    steps = float((np.diff(values) ** 2).sum()) / (2 * (values.size - 1))
    return mean, steps / values.size * (1.0 - stratum.share)


def half_width(variances: Mapping[str, float], counts: Mapping[str, int]) -> float:
    """Half of the confidence interval of a sum of strata (Welch and Satterthwaite).

    Parameters
    ----------
    variances, counts : mapping of str to float and to int
        Variance of each stratum's part in the sum, and its number of draws.
    """
    total = sum(variances.values())
    if total <= 0:
        return 0.0
    squares = sum(v**2 / max(counts[name] - 1, 1) for name, v in variances.items())
    freedom = total**2 / squares
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    student = z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    return student * math.sqrt(total)
