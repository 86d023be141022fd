"""Groups to plan whose costs are given, and their cheapest plans by trying everything."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tstore.plan.problem import Floats, Ints, Problem

MIN_GAIN = 0.02
KINDS = ("families", "star", "chain", "momentum", "tree", "unrelated", "mix")


@dataclass(frozen=True)
class MatrixCosts:
    """Costs from a matrix (k + n, k + n) of stored/raw, targets by row."""

    matrix: Floats

    def ratios(self, targets: Ints, bases: Ints) -> Floats:
        """See `Costs.ratios`."""
        return self.matrix[np.ix_(targets, bases)]

    def pairs(self, targets: Ints, bases: Ints) -> Floats:
        """See `Costs.pairs`."""
        return self.matrix[targets, bases]

    def near(self, targets: Ints, bases: Ints, count: int) -> Ints:
        """See `Costs.near`; exact, the first on a tie."""
        order = np.argsort(self.ratios(targets, bases), axis=1, kind="stable")[:, :count]
        missing = count - order.shape[1]
        return np.pad(bases[order], ((0, 0), (0, missing)), constant_values=-1)


def problem_of(matrix: Floats, standalone: Floats | float = 0.66, n_stored: int = 0) -> Problem:
    """A group with these costs; a tensor is called after its row."""
    n = len(matrix) - n_stored
    return Problem(
        names=tuple(f"tensor {row:05d}" for row in range(len(matrix))),
        n_stored=n_stored,
        standalone=np.broadcast_to(np.asarray(standalone, np.float64), n).copy(),
        costs=MatrixCosts(np.asarray(matrix, np.float64)),
        min_gain=MIN_GAIN,
    )


def random_problem(seed: int, n: int, n_stored: int = 0, *, levels: int = 0) -> Problem:
    """Any costs at all, not even symmetric; with `levels`, only so many different ones."""
    rng = np.random.default_rng(seed)
    shape = (n + n_stored, n + n_stored)
    matrix = rng.uniform(0, 1, shape) ** rng.choice([0.5, 1, 2])
    if levels:
        matrix = np.ceil(levels * matrix) / levels
    if rng.random() < 0.5:
        matrix = np.maximum(matrix, matrix.T)
    return problem_of(matrix, rng.uniform(0.5, 0.9, n), n_stored)


def structured_problem(
    kind: str, seed: int, n: int, n_stored: int = 0, *, spread: float = 1.0, noise: float = 0.0
) -> Problem:
    """Tensors as points, in random order; a delta costs the entropy of their squared distance.

    Parameters
    ----------
    kind : str
        One of `KINDS`.
    seed, n, n_stored : int
    spread : float
        Of the points: with small ones, everything is related to everything.
    noise : float
        Relative error of the costs.
    """
    rng = np.random.default_rng(seed)
    points = spread * rng.permutation(_points(kind, n + n_stored, rng))
    squared = ((points[:, None] - points) ** 2).sum(axis=2)
    p = np.clip(0.12 * squared, 1e-9, 0.5)
    ratio = -p * np.log2(p) - (1 - p) * np.log2(1 - p)
    ratio *= np.exp(noise * rng.standard_normal(ratio.shape))
    return problem_of(np.minimum(ratio, 1), rng.uniform(0.62, 0.7, n), n_stored)


def _points(kind: str, n: int, rng: np.random.Generator) -> Floats:
    """The points of a kind of group, (n, 16)."""
    steps = rng.standard_normal((n, 16))
    if kind == "families":
        roots = rng.standard_normal((n // 12 + 1, 16))
        return roots[rng.integers(len(roots), size=n)] + rng.choice([0.05, 0.2], (n, 1)) * steps
    if kind == "star":
        return np.where(np.arange(n)[:, None] == 0, 0, 0.2 * steps)
    if kind == "chain":
        return np.cumsum(0.08 * steps, axis=0)
    if kind == "momentum":  # checkpoints that go on in about the same direction, slower and slower
        pace = np.zeros(16)
        for i in range(n):
            pace = 0.9 * pace + 0.06 * steps[i] / (1 + 3 * i / n)
            steps[i] = pace
        return np.cumsum(steps, axis=0)
    if kind == "tree":
        steps *= rng.choice([0.05, 0.15, 0.4], (n, 1))
        for i in range(1, n):
            steps[i] += steps[rng.integers(i)]
        return steps
    if kind == "unrelated":
        return 10 * steps
    parts = ("families", "star", "chain", "unrelated")
    sizes = [len(part) for part in np.array_split(np.arange(n), len(parts))]
    pairs = zip(parts, sizes, strict=True)
    return np.concatenate(
        [_points(part, size, rng) + 3 * i for i, (part, size) in enumerate(pairs)]
    )


def reordered(problem: Problem, order: Ints) -> Problem:
    """The same tensors with other ids: the one that was ``order[i]`` is i."""
    k = problem.n_stored
    return replace(
        problem,
        names=tuple(problem.names[i] for i in order),
        standalone=problem.standalone[order[k:] - k],
        costs=MatrixCosts(problem.costs.ratios(order, order)),
    )


def optimum(problem: Problem) -> float:
    """Cheapest total over all sets of new bases; at most a dozen new tensors."""
    k, n = problem.n_stored, problem.standalone.size
    everything = np.arange(k + n)
    ratio = problem.costs.ratios(everything[k:], everything)
    ratio = np.where(ratio <= problem.standalone[:, None] - problem.min_gain, ratio, np.inf)
    ratio[np.arange(n), k + np.arange(n)] = problem.standalone
    best = np.inf
    for subset in range(1 << n):
        whole = subset >> np.arange(n) & 1 == 1
        cost = ratio[:, np.append(np.ones(k, np.bool_), whole)].min(axis=1, initial=np.inf)
        best = min(best, cost[~whole].sum() + problem.standalone[whole].sum())
    return float(best)
