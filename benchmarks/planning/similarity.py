"""Who finds the best base, and how fast (TStore, Fig. 12)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from benchmarks.planning.bench import Bench
from benchmarks.planning.hub import UniqueTensor
from benchmarks.planning.searches import (
    NOTHING,
    BitSampling,
    BlockPredictions,
    BruteForce,
    IndexedPredictions,
    Predictions,
    RandomProjection,
    RawHNSW,
    Search,
    Sketches,
)
from benchmarks.planning.tables import Cell, Table
from tstore.plan.costs import SketchCosts
from tstore.sketch.groups import SketchGroup
from tstore.sketch.layout import SketchLayout

TIE = 1.01
"""An answer within this factor of the best one counts as found."""
USEFUL = 0.98
"""Of its size alone, what the best known delta may take for a tensor to have a relative."""

Answers = NDArray[np.int64]


@dataclass
class Score:
    """What one way to search did with one dtype.

    Attributes
    ----------
    queries, nearest : int
        Tensors that had earlier ones; answers as near as the truth.
    related, best : int
        Those that a delta makes smaller; answers that make it as small as any known answer.
    raw, stored : int
        Bytes of all queries, and what they take with the answers as bases.
    prepare_s, query_s, add_s : float
    """

    queries: int = 0
    nearest: int = 0
    related: int = 0
    best: int = 0
    raw: int = 0
    stored: int = 0
    prepare_s: float = 0.0
    query_s: float = 0.0
    add_s: float = 0.0

    def row(self) -> tuple[float, ...]:
        """Recalls, reduction, queries per second with and without preparation, inserts."""
        return (
            self.nearest / self.queries,
            self.best / self.related if self.related else float("nan"),
            1 - self.stored / self.raw,
            self.queries / (self.prepare_s + self.query_s),
            self.queries / self.query_s,
            self.queries / max(self.add_s, 1e-9),
        )


@dataclass
class _Run:
    """Answers of one search in one group, -1 for none, with the seconds they took."""

    answers: list[int] = field(default_factory=list)
    prepare_s: float = 0.0
    query_s: float = 0.0
    add_s: float = 0.0


def similarity_table(bench: Bench) -> Table:
    """Recall@1 and speed of all ways to search, by dtype."""
    scores: dict[tuple[str, str], Score] = {}
    for group in bench.groups_of(*bench.dtypes):
        if len(group.ids) == 1:
            continue
        runs = {name: _run(bench, group, start()) for name, start in _searches(bench, group)}
        for name, score in _judge(bench, group, runs, scores):
            run = runs[name]
            score.prepare_s += run.prepare_s
            score.query_s += run.query_s
            score.add_s += run.add_s
    columns = (
        "search", "dtype", "queries", "recall@1, bits", "recall@1, size", "reduction",
        "QPS with preparation", "QPS", "inserts/s",
    )  # fmt: skip
    rows: list[tuple[Cell, ...]] = [
        (name, dtype, score.queries, *score.row())
        for (dtype, name), score in sorted(scores.items(), key=lambda item: item[0][0])
    ]
    return Table("similarity", columns, rows)


def _searches(bench: Bench, group: SketchGroup) -> Iterator[tuple[str, Callable[[], Search]]]:
    """Names of the ways to search, and how to begin each in a group."""
    settings = bench.hub.settings
    dtype, nbytes, n = group.dtype, group.nbytes, len(group.ids)
    layout = SketchLayout.of(dtype, settings)
    predictor = bench.predictor(dtype, bench.codec)
    costs = SketchCosts(group.sketches, layout, np.full(len(group.ids), nbytes), predictor)
    yield "exact bit distance", BruteForce
    yield "HNSW of raw bits", lambda: RawHNSW(nbytes)
    yield "LSH, bit sampling", lambda: BitSampling(nbytes)
    yield "random projection, HNSW", lambda: RandomProjection(nbytes // layout.element_nbytes)
    yield "TensorSketch", lambda: Sketches(dtype, nbytes, n, settings)
    yield "TensorSketch, TensorPred", lambda: Predictions(costs, settings)
    yield "TensorSketch, TensorPred, in blocks", lambda: BlockPredictions(costs, settings)
    yield "TensorSketch, HNSW, TensorPred", lambda: IndexedPredictions(costs, settings)


def _run(bench: Bench, group: SketchGroup, search: Search) -> _Run:
    """Each tensor asks for the most similar earlier one and is then added, one at a time."""
    run, clock = _Run(), time.perf_counter
    for i, tensor_id in enumerate(group.ids):
        tensor: UniqueTensor = bench.hub.tensors[tensor_id]
        start = clock()
        known_by = search.prepare(tensor)
        prepared = clock()
        if i:
            run.answers.append(search.nearest(known_by))
            run.prepare_s += prepared - start
        found = clock()
        search.add(known_by)
        run.query_s += found - prepared
        run.add_s += clock() - found
    return run


def _judge(
    bench: Bench, group: SketchGroup, runs: dict[str, _Run], scores: dict[tuple[str, str], Score]
) -> Iterator[tuple[str, Score]]:
    """Add up how good the answers are, by exact bit distance and by real size."""
    bits = bench.distances.of(group)
    n = len(group.ids)
    least = np.array([bits[i, :i].min() for i in range(1, n)])
    alone = np.array(list(bench.sizes.alone(group.ids).values()))[1:]
    sizes = {name: _sizes(bench, group, run.answers, alone) for name, run in runs.items()}
    smallest = np.minimum.reduce(list(sizes.values()))
    related = smallest <= USEFUL * alone
    for name, run in runs.items():
        answers = np.array(run.answers)
        found = answers != NOTHING
        near = found & (bits[np.arange(1, n), answers] <= TIE * least)
        best = related & (sizes[name] <= TIE * smallest)
        score = scores.setdefault((group.dtype, name), Score())
        score.queries += n - 1
        score.nearest += int(near.sum())
        score.related += int(related.sum())
        score.best += int(best.sum())
        score.raw += (n - 1) * group.nbytes
        score.stored += int(sizes[name].sum())
        yield name, score


def _sizes(bench: Bench, group: SketchGroup, answers: list[int], alone: Answers) -> Answers:
    """Real bytes of each query with its answer as base; alone where that is smaller."""
    asked = [(i, base) for i, base in enumerate(answers, 1) if base != NOTHING]
    blobs = ((group.ids[i], group.ids[base], bench.codec) for i, base in asked)
    sizes = alone.copy()
    for (i, _), nbytes in zip(asked, bench.sizes.measured(blobs), strict=True):
        sizes[i - 1] = min(sizes[i - 1], nbytes)
    return sizes
