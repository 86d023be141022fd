"""A hub of a million tensors, planned from simulated sketches: ``python -m benchmarks.planning.scale``.

Groups come one by one, as they would from a catalog: sketches of one group at a time are in memory.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tstore.plan.check import check
from tstore.plan.costs import SketchCosts
from tstore.plan.flexsplit import arrive, split
from tstore.plan.problem import Problem
from tstore.predict.tensorpred import prior
from tstore.settings import SketchSettings
from tstore.sketch.distances import one_blas_thread
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
"""Tensors in the largest group, in its average family, in the smallest group."""

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
    while left:
        largest = LARGEST if left == n else LARGEST // 3
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


def main() -> None:
    """Plan the hub and print what it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tensors", type=int, default=1_000_000)
    with one_blas_thread():
        _plan(parser.parse_args().tensors)


def _plan(n: int) -> None:
    groups, seconds, processor, totals = 0, np.zeros(3), 0.0, np.zeros(3)
    for problem in simulate(n):
        groups += 1
        busy, times = time.process_time(), [time.perf_counter()]
        first = arrive(problem)
        times.append(time.perf_counter())
        second = split(problem, first)
        times.append(time.perf_counter())
        check(problem, second)
        times.append(time.perf_counter())
        processor += time.process_time() - busy
        seconds += np.diff(times)
        totals += [ratio.sum() for ratio in (problem.standalone, first.ratio, second.ratio)]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    alone, first_total, second_total = totals / n
    print(f"{n:,} tensors in {groups:,} groups, the largest of {min(n, LARGEST):,}")
    print(f"standalone {alone:.4f}, phase I {first_total:.4f}, phase II {second_total:.4f}")
    print("phase I {:.1f} s, phase II {:.1f} s, check {:.1f} s".format(*seconds))
    print(f"{seconds.sum():.1f} s by the clock, {processor:.1f} s of processor time")
    print(f"peak {peak:.2f} GiB")


if __name__ == "__main__":
    main()
