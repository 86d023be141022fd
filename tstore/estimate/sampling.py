"""Which blocks are looked at, and what they say of the whole.

The large and the small tensors of each dtype are strata. Blocks are drawn with a probability proportional to their bytes, at even
steps along the sorted clusters, so that every part of a model has its share of them. The mean of
what the draws say is then an unbiased estimate for the stratum (Hansen and Hurwitz).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from tstore.estimate.clusters import Cluster

CONFIDENCE = 0.95
MIN_DRAWS = 16
"""Draws of each stratum, or it is looked at as a whole if that is less to read."""
WHOLE_SHARE = 1 / 32
"""So is what is this little of the whole sample: small tensors are many and take no time."""


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

    @property
    def key(self) -> tuple[int, int]:
        """What tells it from other draws while the frame lives, and is quick to hash."""
        return id(self.cluster), self.block


@dataclass(frozen=True)
class Stratum:
    """Draws from all clusters of one dtype, large or small.

    Attributes
    ----------
    dtype : str
    nbytes : int
        Raw bytes of the clusters.
    draws : tuple of Draw
        In the order of the clusters; their weights sum to 1.
    n_members : int
        Tensors or extents in the clusters.
    share : float
        Part of the stratum that is in the sample; 1 if that is all of it.
    """

    dtype: str
    nbytes: int
    n_members: int
    draws: tuple[Draw, ...]
    share: float


def draw_sample(
    clusters: Sequence[Cluster], nbytes: float, small_nbytes: int, seed: int
) -> list[Stratum]:
    """Draw blocks of about `nbytes` together, from each stratum according to its size.

    Parameters
    ----------
    clusters : sequence of Cluster
        Sorted so that neighbours are alike.
    nbytes : float
        Bytes to read.
    small_nbytes : int
        Tensors below are small.
    seed : int
        The same seed draws the same blocks.
    """
    rng = np.random.default_rng(seed)
    total = sum(cluster.nbytes for cluster in clusters)
    strata = []

    def stratum_of(cluster: Cluster) -> tuple[str, bool]:
        return cluster.dtype, cluster.least.nbytes < small_nbytes

    for (dtype, _), found in groupby(sorted(clusters, key=stratum_of), key=stratum_of):
        members = list(found)
        sizes = np.array([cluster.nbytes for cluster in members], dtype=np.float64)
        blocks = np.array([cluster.block_nbytes for cluster in members])
        all_nbytes = float(np.dot(blocks, [cluster.n_blocks for cluster in members]))
        mean_nbytes = float(np.dot(sizes / sizes.sum(), blocks))
        count = max(round(nbytes * sizes.sum() / total / mean_nbytes), MIN_DRAWS)
        if all_nbytes <= max(count * mean_nbytes, WHOLE_SHARE * nbytes):
            strata.append(_whole(dtype, members))
        else:
            strata.append(_some(dtype, members, sizes, count, rng))
    return strata


def _whole(dtype: str, clusters: list[Cluster]) -> Stratum:
    total = sum(cluster.nbytes for cluster in clusters)
    count = sum(len(cluster.members) for cluster in clusters)
    draws = tuple(
        Draw(cluster, block, cluster.nbytes / cluster.n_blocks / total)
        for cluster in clusters
        for block in range(cluster.n_blocks)
    )
    return Stratum(dtype, total, count, draws, 1.0)


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
    n_members = sum(len(cluster.members) for cluster in clusters)
    drawn = {draw.key: draw.cluster.block_nbytes for draw in draws}
    every = sum(cluster.block_nbytes * cluster.n_blocks for cluster in clusters)
    share = sum(drawn.values()) / every
    return Stratum(dtype, int(ends[-1]), n_members, tuple(draws), share)


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


def half_width(variances: Sequence[float], counts: Sequence[int]) -> float:
    """Half of the confidence interval of a sum of strata (Welch and Satterthwaite).

    Parameters
    ----------
    variances : sequence of float
        Of each stratum's part in the sum.
    counts : sequence of int
        Draws of each.
    """
    total = sum(variances)
    if total <= 0:
        return 0.0
    squares = sum(v * v / max(n - 1, 1) for v, n in zip(variances, counts, strict=True))
    freedom = total**2 / squares
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    student = z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    return student * math.sqrt(total)
