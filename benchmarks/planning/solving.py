"""Time and quality of the solvers as a group grows (TStore, Fig. 14)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.planning.bench import Bench
from benchmarks.planning.hub import ByteArray
from benchmarks.planning.searches import floats
from benchmarks.planning.solvers import ilp, primal_dual
from benchmarks.planning.tables import Cell, Table
from tstore.plan.flexsplit import arrive, assign
from tstore.plan.problem import Planner, Problem
from tstore.sketch.groups import SketchGroup
from tstore.sketch.statistics import plane_entropies, standalone_ratio
from tstore.sketch.tensorsketch import build

SIZES = (100, 200, 400, 800)
OPTIMUM = "integer program"
SOLVERS: Final[Mapping[str, Planner]] = {
    "phase I": arrive,
    "flexsplit": assign,
    "primal-dual": primal_dual,
    OPTIMUM: ilp,
}
FINE_TUNE_NOISE = (2e-4, 2e-2)
"""Of the standard deviation of the weights: changes 1–20 % of the bits of bf16."""
STEP_NOISE = 3e-4
"""The same from one checkpoint to the next: 3 % of stored/raw."""

Values = NDArray[np.float32]


def solving_table(bench: Bench) -> Table:
    """Seconds and predicted reduction of each solver, and what pricing all pairs takes of them."""
    group = max(bench.groups_of("BF16", "F32"), key=lambda group: len(group.ids))
    rows: list[tuple[Cell, ...]] = []
    for kind, data in (
        ("fine-tunes", fine_tunes(bench, group)),
        ("checkpoints", checkpoints(bench, group)),
    ):
        grown = _sketched(bench, group, data)
        for solver in SOLVERS.values():
            solver(_part(bench, grown, SIZES[0] // 10))  # compiled
        for n in SIZES:
            rows += ((kind, n, *row) for row in _solve(_part(bench, grown, n)))
    columns = ("group", "tensors", "solver", "seconds", "pricing s", "reduction", "over optimum")
    return Table("solvers", columns, rows)


def _solve(problem: Problem) -> Iterator[tuple[str, float, float, float, float]]:
    """Solver, seconds, seconds of pricing, reduction, share over the optimum."""
    everyone = np.arange(len(problem.names))
    start = time.perf_counter()
    problem.costs.ratios(everyone, everyone)
    pricing = time.perf_counter() - start
    found = {name: _timed(solver, problem) for name, solver in SOLVERS.items()}
    least = found[OPTIMUM][1]
    for name, (seconds, total) in found.items():
        yield name, seconds, pricing, 1 - total / everyone.size, total / least - 1


def _timed(solver: Planner, problem: Problem) -> tuple[float, float]:
    start = time.perf_counter()
    total = float(solver(problem).ratio.sum())
    return time.perf_counter() - start, total


def fine_tunes(bench: Bench, group: SketchGroup) -> list[ByteArray]:
    """The tensors of a group with simulated fine-tunes, of them and of those again, shuffled."""
    rng = np.random.default_rng(0)
    data = [bench.hub.tensors[tensor_id].read() for tensor_id in group.ids]
    low, high = np.log(FINE_TUNE_NOISE)
    while len(data) < max(SIZES):
        values = floats(data[rng.integers(len(data))], group.dtype)
        data.append(stored(noisy(values, np.exp(rng.uniform(low, high)), rng), group.dtype))
    return [data[i] for i in rng.permutation(len(data))]


def checkpoints(bench: Bench, group: SketchGroup) -> list[ByteArray]:
    """A long simulated training run that starts from the first tensor of a group, in order."""
    rng = np.random.default_rng(0)
    values = floats(bench.hub.tensors[group.ids[0]].read(), group.dtype)
    data: list[ByteArray] = []
    while len(data) < max(SIZES):
        data.append(stored(values, group.dtype))
        values = noisy(values, STEP_NOISE, rng)  # the run itself is in f32
    return data


def noisy(values: Values, share: float, rng: np.random.Generator) -> Values:
    """Add Gaussian noise of a share of the standard deviation of `values`."""
    scale = np.float32(share) * values.std()
    changed: Values = values + scale * rng.standard_normal(values.size, dtype=np.float32)
    return changed


def stored(values: Values, dtype: str) -> ByteArray:
    """Bytes of finite values as BF16, rounded to the nearest, ties to even, or as F32."""
    if dtype == "F32":
        return values.view(np.uint8)
    bits = values.view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return rounded.astype(np.uint16).view(np.uint8)


def _sketched(bench: Bench, group: SketchGroup, data: Sequence[ByteArray]) -> SketchGroup:
    """A group of these tensors, named by their numbers."""
    alone = [standalone_ratio(plane_entropies(raw, group.dtype), raw.size) for raw in data]
    return SketchGroup(
        dtype=group.dtype,
        shape=group.shape,
        nbytes=group.nbytes,
        ids=tuple(f"{i:04}" for i in range(len(data))),
        sketches=np.stack([build(raw, group.dtype, bench.hub.settings) for raw in data]),
        standalone=np.array(alone),
    )


def _part(bench: Bench, grown: SketchGroup, n: int) -> Problem:
    """The choice of bases among the first `n` tensors."""
    part = SketchGroup(
        grown.dtype, grown.shape, grown.nbytes, grown.ids[:n], grown.sketches[:n],
        grown.standalone[:n],
    )  # fmt: skip
    return bench.problem(part, bench.codec)
