"""A hub of a million tensors, planned from simulated sketches: ``python -m benchmarks.planning.scale``.

Groups come one by one, as they would from a catalog: sketches of one group at a time are in memory.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tstore.plan.check import check
from tstore.plan.flexsplit import arrive, split
from tstore.plan.problem import STANDALONE, Floats, Ints, Problem

NUMBERS = 4096
"""Numbers in a sketch."""
SPREAD = 38.0
"""Standard deviation of a number."""
UNRELATED = 0.36
"""Share of the bits that differ between unrelated tensors of trained weights."""
RELATED = (0.002, 0.1)
"""The same between a tensor and the one that it was trained from."""
LARGEST, FAMILY, SMALLEST = 60_000, 12, 8
"""Tensors in the largest group, in its average family, in the smallest group."""
FOLD = 64
"""Numbers added up into one for the search of neighbours."""
ROWS = 512

Sketches = NDArray[np.int16]


@dataclass(frozen=True)
class SimulatedCosts:
    """Entropy of the differing bits, as their share follows from sketches (see `Costs`).

    Attributes
    ----------
    sketches : int16 (n, NUMBERS)
    folded : float32 (n, NUMBERS / FOLD)
    """

    sketches: Sketches
    folded: NDArray[np.float32]

    @classmethod
    def of(cls, sketches: Sketches) -> SimulatedCosts:
        """Fold the sketches."""
        parts = sketches.reshape(len(sketches), -1, FOLD)
        return cls(sketches, parts.sum(axis=2, dtype=np.float32))

    def ratios(self, targets: Ints, bases: Ints) -> Floats:
        """See `Costs.ratios`. Squares of sketches add up to less than 2**24: floats are exact."""
        a, b = (self.sketches[ids].astype(np.float32) for ids in (targets, bases))
        share = _squared(a, b) * (UNRELATED / (2 * NUMBERS * SPREAD**2))
        ratio: Floats = np.interp(share, _SHARES, _ENTROPY)
        return ratio

    def near(self, targets: Ints, bases: Ints, count: int) -> Ints:
        """See `Costs.near`: exact among folded sketches."""
        found = np.full((targets.size, count), STANDALONE, dtype=np.int64)
        count = min(count, bases.size)
        for start in range(0, targets.size if count else 0, ROWS):
            part = slice(start, start + ROWS)
            squared = _squared(self.folded[targets[part]], self.folded[bases])
            nearest = np.argpartition(squared, count - 1, axis=1)[:, :count]
            found[part, :count] = bases[nearest]
        return found


_SHARES = np.linspace(0.0, 0.5, 1025)
_ENTROPY = np.zeros(_SHARES.size)
_ENTROPY[1:] = -(_SHARES[1:] * np.log2(_SHARES[1:]) + (1 - _SHARES[1:]) * np.log2(1 - _SHARES[1:]))


def _squared(a: NDArray[np.float32], b: NDArray[np.float32]) -> NDArray[np.float32]:
    """Squared distances of all pairs of rows."""
    squared = a @ b.T
    squared *= np.float32(-2)
    squared += np.einsum("ij,ij->i", a, a)[:, None]
    squared += np.einsum("ij,ij->i", b, b)
    return squared


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
            costs=SimulatedCosts.of(sketches),
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
    n = parser.parse_args().tensors
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
