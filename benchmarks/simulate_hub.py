"""Plan a simulated hub of any size: ``python -m benchmarks.simulate_hub --store DIR``.

What a scan of the hub would have left is written to the store as the staged rows of an unfinished
run, and planned from there through the real stages, on a private Ray. With ``--stream`` groups are
made, planned and dropped one after the other: nothing is kept but counts.
"""

from __future__ import annotations

import argparse
import io
import multiprocessing
import resource
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
from rich.console import Console

from benchmarks.planning.scale import NBYTES, NUMBERS, PREDICTOR, SETTINGS, simulate
from tstore.catalog.catalog import write_tables
from tstore.catalog.schema import EXTENTS, SOURCES
from tstore.catalog.store import open_or_create
from tstore.catalog.workspace import Workspace, open_workspace
from tstore.cluster.ingest import IngestOptions
from tstore.cluster.job import Job
from tstore.cluster.planning import candidate_groups, plan_new
from tstore.cluster.session import ray_session
from tstore.ids import content_hash, make_tensor_id
from tstore.plan.dedup import OCCURRENCES, accept, load_scanned
from tstore.plan.flexsplit import assign
from tstore.plan.problem import STANDALONE, Problem
from tstore.plan.staged import kept_fingerprints, stage_fingerprints
from tstore.plan.stored import place_stored
from tstore.predict.pairs import choose_pairs
from tstore.sketch.distances import one_blas_thread

SHARD_ROWS = 2000
"""Tensors per scan task: those of a shard are one file's, and of one group."""
ROOT = "/simulated"
PAIRS = 96


@dataclass
class Measured:
    """What planning took.

    Attributes
    ----------
    groups : int
    largest : int
        Tensors in the largest group.
    seconds : dict of str to float
        By step.
    standalone, planned : float
        Predicted stored/raw of the hub without deltas, and as planned.
    deltas : int
    driver_nbytes, worker_nbytes : int
        Peak resident memory of this process and of the largest worker.
    """

    groups: int = 0
    largest: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    standalone: float = 0.0
    planned: float = 0.0
    deltas: int = 0
    driver_nbytes: int = 0
    worker_nbytes: int = 0

    def time(self, step: str, since: float) -> None:
        """Add the time since then to a step."""
        self.seconds[step] = self.seconds.get(step, 0.0) + time.perf_counter() - since


def scan(n: int, store: str) -> tuple[Workspace, list[str]]:
    """Write what a scan of `n` simulated tensors would leave; its workspace and shards."""
    opened = open_or_create(store, SETTINGS)
    workspace, _ = open_workspace(opened.objects, {"simulated": n})
    shards = []
    for number, problem in enumerate(simulate(n)):
        for first in range(0, len(problem.names), SHARD_ROWS):
            shards.append(f"{number:08d}-{first:08d}")
            tables = _scanned(problem, number, slice(first, first + SHARD_ROWS), shards[-1])
            workspace.write_shard("scan", shards[-1], tables, {})
    return workspace, shards


def _scanned(problem: Problem, group: int, part: slice, name: str) -> dict[str, pa.Table]:
    """Rows of one simulated file; every 50th group has the rows of the one before it."""
    sketches = problem.costs.sketches[part]  # type: ignore[attr-defined]
    n = len(sketches)
    shape = (9, 99 + group) if group % 50 == 49 else (8, 100 + group)
    digests = [content_hash(f"{name} {row}".encode()) for row in range(n)]
    columns = {
        "source": [f"{ROOT}/{name}"] * n,
        "index": range(n),
        "name": [f"layer.{row}" for row in range(n)],
        "tensor_id": [make_tensor_id(digest, "BF16", shape) for digest in digests],
        "dtype": ["BF16"] * n,
        "shape": [shape] * n,
        "nbytes": [NBYTES] * n,
        "start": range(0, n * NBYTES, NBYTES),
        "sha256": [2 * digest for digest in digests],
        "sketch": pa.ListArray.from_arrays(
            np.arange(0, n * NUMBERS + 1, NUMBERS, dtype=np.int32), sketches.reshape(-1)
        ),
        "plane_entropy": [[7.9, 2.6]] * n,
        "standalone_ratio": problem.standalone[part],
    }
    arrays = [
        pa.array(columns[f.name], f.type) if f.name in columns else pa.nulls(n, f.type)
        for f in EXTENTS
    ]
    source = {"source": f"{ROOT}/{name}", "sha256": "0" * 64, "readable": True}
    return {
        "sources": pa.Table.from_pylist([source], SOURCES),
        "extents": pa.Table.from_arrays(arrays, schema=EXTENTS),
    }


def _occurrences(shards: list[str]) -> pa.Table:
    """One file per shard, arriving in an order that mixes the groups."""
    order = np.random.default_rng(0).permutation(len(shards))
    rows = [
        {"ord": int(place), "repo": f"lab/{shard}", "revision": "main", "refs": [], "path": "w",
         "nbytes": NBYTES * SHARD_ROWS, "source": f"{ROOT}/{shard}", "source_tag": ""}
        for place, shard in zip(order, shards, strict=True)
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, OCCURRENCES)


def plan_staged(n: int, store: str, session: Callable[[], object] = ray_session) -> Measured:
    """Scan in a process of its own, so that what is measured is planning alone; then plan."""
    measured, start = Measured(), time.perf_counter()
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        workspace, shards = pool.submit(scan, n, store).result()
    measured.time("simulate", start)
    opened = open_or_create(store, SETTINGS)
    catalog = opened.catalog()
    with catalog.connect() as connection, session():  # type: ignore[attr-defined]
        job = Job(
            IngestOptions(hub="simulated", store=store), opened, connection, workspace,
            Console(file=io.StringIO()),
        )  # fmt: skip
        _plan(job, shards, measured)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    measured.driver_nbytes = usage.ru_maxrss * 1024
    if "plan" in job.stages:
        measured.worker_nbytes = max(job.stages["plan"].worker_memory.values(), default=0)
    return measured


def _plan(job: Job, shards: list[str], measured: Measured) -> None:
    connection, sketch = job.connection, job.store.sketch
    start = time.perf_counter()
    load_scanned(connection, job.workspace, shards)
    accept(connection, _occurrences(shards), [])
    measured.time("accept", start)
    start = time.perf_counter()
    new = stage_fingerprints(connection, job.workspace, shards, sketch)
    measured.time("sort", start)
    start = time.perf_counter()
    stored = place_stored(connection, job.store.catalog(), new.groups, sketch)
    choose_pairs(candidate_groups(new, stored, "BF16"), sketch, np.empty(0), PAIRS)
    measured.time("choose pairs", start)
    start = time.perf_counter()
    plan_new(job, new, stored, {"BF16": PREDICTOR}, {})
    measured.time("plan", start)
    start = time.perf_counter()
    kept = kept_fingerprints(connection, new.parts, "planned")
    write_tables(job.store.objects, "simulated", {"fingerprints": kept})
    measured.time("write fingerprints", start)
    sizes = [group.rows.size for group in new.groups.values()]
    measured.groups, measured.largest = len(sizes), max(sizes)
    ((measured.standalone, measured.planned, measured.deltas),) = connection.sql(
        "SELECT avg(standalone_ratio), avg(predicted_ratio), count(base_id) FROM planned"
    ).fetchall()


def plan_streamed(n: int) -> Measured:
    """Make, plan and drop one group after the other."""
    measured = Measured()
    with one_blas_thread():
        for problem in _timed(simulate(n), measured):
            start = time.perf_counter()
            plan = assign(problem)
            measured.time("plan", start)
            measured.groups += 1
            measured.largest = max(measured.largest, plan.base.size)
            measured.standalone += problem.standalone.sum() / n
            measured.planned += plan.ratio.sum() / n
            measured.deltas += int((plan.base != STANDALONE).sum())
    measured.driver_nbytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return measured


def _timed(problems: Iterator[Problem], measured: Measured) -> Iterator[Problem]:
    while True:
        start = time.perf_counter()
        problem = next(problems, None)
        if problem is None:
            return
        measured.time("simulate", start)
        yield problem


def main() -> None:
    """Plan the hub and print what it took."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulate_hub", description=__doc__)
    parser.add_argument("--tensors", type=int, default=1_000_000)
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--store", type=Path, help="a new directory; 5 KB per tensor, twice")
    how.add_argument("--stream", action="store_true", help="keep nothing but counts")
    given = parser.parse_args()
    found = (
        plan_streamed(given.tensors)
        if given.stream
        else plan_staged(given.tensors, str(given.store))
    )
    print(f"{given.tensors:,} tensors in {found.groups:,} groups, the largest of {found.largest:,}")
    print(
        f"standalone {found.standalone:.4f}, planned {found.planned:.4f}, {found.deltas:,} deltas"
    )
    print(", ".join(f"{step} {seconds:.1f} s" for step, seconds in found.seconds.items()))
    peaks = {"driver": found.driver_nbytes, "largest worker": found.worker_nbytes}
    print(
        ", ".join(f"{name} {nbytes / 2**20:,.0f} MiB" for name, nbytes in peaks.items() if nbytes)
    )


if __name__ == "__main__":
    main()
