"""Groups of a hub of any size, made of simulated sketches.

Groups come one by one, as they would from a catalog: sketches of one group at a time are in memory.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tstore.plan.costs import SketchCosts
from tstore.plan.problem import Problem
from tstore.predict.tensorpred import prior
from tstore.settings import SketchSettings
from tstore.sketch.layout import SketchLayout

SETTINGS = SketchSettings()
LAYOUT = SketchLayout.of("BF16", SETTINGS)
NUMBERS = SETTINGS.depth * SETTINGS.width
"""Numbers in a sketch."""
SPREAD = 38.0
"""Standard deviation of a number."""
UNRELATED = 0.36
"""Share of the bits that differ between unrelated tensors of trained weights."""
NBYTES = round(2 * SPREAD**2 * SETTINGS.width / (8 * UNRELATED))
"""Size of tensors whose sketches have such numbers: 2 MB."""
PREDICTOR = prior("BF16", "ulprow", LAYOUT.shares)
RELATED = (0.002, 0.1)
"""The same between a tensor and the one that it was trained from."""
LARGEST, FAMILY, SMALLEST = 60_000, 12, 8
"""Tensors in the largest group (of a million or more), in its average family, in the smallest
group."""

Sketches = NDArray[np.int16]


def simulate(n: int, seed: int = 0) -> Iterator[Problem]:
    """Groups of a hub, the largest first; their sizes have a heavy tail.

    Parameters
    ----------
    n : int
        Tensors in all.
    seed : int
    """
    rng = np.random.default_rng(seed)
    left = n
    most = min(LARGEST, max(n // 16, SMALLEST))
    while left:
        largest = most if left == n else max(most // 3, SMALLEST)
        pareto = SMALLEST / (1.0 - rng.random())  # Zipf: half as many groups of twice the size
        size = min(largest if left == n else int(min(pareto, largest)), left)
        left -= size
        sketches = _group(size, rng)
        yield Problem(
            names=tuple(f"{left}-{row}" for row in range(size)),
            n_stored=0,
            standalone=rng.uniform(0.64, 0.7, size),
            costs=SketchCosts(sketches, LAYOUT, np.full(size, NBYTES), PREDICTOR),
            min_gain=0.02,
        )


def _group(size: int, rng: np.random.Generator) -> Sketches:
    """Families of fine-tunes of one root, of fine-tunes of fine-tunes, and of checkpoints.

    The order is random.
    """
    rows, row = rng.permutation(size), 0
    sketches = np.empty((size, NUMBERS), dtype=np.int16)
    while row < size:
        family = min(int(rng.geometric(1 / FAMILY)), size - row)
        kind = rng.choice(["star", "tree", "chain"])
        sketches[rows[row]] = np.rint(rng.normal(0, SPREAD, NUMBERS))
        for member in range(1, family):
            parent = {"star": 0, "tree": int(rng.integers(member)), "chain": member - 1}[kind]
            share = np.exp(rng.uniform(*np.log(RELATED)))
            step = SPREAD * np.sqrt(2 * share / UNRELATED)
            moved = sketches[rows[row + parent]] + rng.normal(0, step, NUMBERS).astype(np.float32)
            moved *= SPREAD / moved.std()  # training does not make weights ever larger
            sketches[rows[row + member]] = np.rint(moved)
        row += family
    return sketches
