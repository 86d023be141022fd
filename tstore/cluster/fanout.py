"""Run a stage function on every shard as Ray tasks; knows no tensors.

A stage function is a plain function ``(shard, *args) -> {table name: rows}``. Its worker writes
the rows to the workspace; only counts come back. Finished shards are not run again.
"""

from __future__ import annotations

import os
import resource
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa
import ray
from ray.exceptions import RayError, RayTaskError
from rich.console import Console

from tstore.catalog.workspace import Workspace
from tstore.cluster.environment import check_same_code, code_version
from tstore.cluster.progress import StageProgress
from tstore.errors import StageFailedError

_TASKS_PER_CPU = 2
"""Tasks in flight per core: one runs while the next one's worker is found."""


class Shard(Protocol):
    """What a stage works on."""

    @property
    def key(self) -> str: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def memory_nbytes(self) -> int: ...


StageFunction = Callable[..., dict[str, pa.Table]]


@dataclass
class StageReport:
    """Where the time and memory of a stage went.

    Attributes
    ----------
    seconds : float
        Wall time of the stage.
    task_seconds : float
        Sum over its tasks.
    nbytes : int
        Raw bytes of all shards.
    shards, shards_resumed : int
        Shards in all, and those that an interrupted run had finished.
    worker_memory : dict of str to int
        Peak resident bytes of each worker process.
    """

    seconds: float = 0.0
    task_seconds: float = 0.0
    nbytes: int = 0
    shards: int = 0
    shards_resumed: int = 0
    worker_memory: dict[str, int] = field(default_factory=dict)

    def add(self, stats: dict[str, Any]) -> None:
        """Count one finished task."""
        self.task_seconds += stats["seconds"]
        worker = stats["worker"]
        known = self.worker_memory.get(worker, 0)
        self.worker_memory[worker] = max(known, stats["peak_memory_nbytes"])


def peak_memory_nbytes() -> int:
    """Peak resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def fan_out(
    stage: str,
    function: StageFunction,
    shards: Sequence[Shard],
    args: tuple[Any, ...],
    workspace: Workspace,
    *,
    max_retries: int,
    console: Console,
) -> StageReport:
    """Run `function` on each shard that is not finished; return when all are.

    Raises
    ------
    StageFailedError
        A shard raised, or its worker was lost more than `max_retries` times.
    """
    started = time.monotonic()
    done = workspace.finished(stage)
    todo = [shard for shard in shards if shard.key not in done]
    report = StageReport(shards=len(shards), shards_resumed=len(shards) - len(todo))
    report.nbytes = sum(shard.nbytes for shard in shards)
    _check_memory(stage, todo)
    with StageProgress(console, stage, report.nbytes) as progress:
        progress.advance(sum(shard.nbytes for shard in shards if shard.key in done))
        for shard, stats in _completed(stage, function, todo, args, workspace, max_retries):
            report.add(stats)
            progress.advance(shard.nbytes)
    report.seconds = time.monotonic() - started
    return report


def _completed(
    stage: str,
    function: StageFunction,
    shards: Sequence[Shard],
    args: tuple[Any, ...],
    workspace: Workspace,
    max_retries: int,
) -> Iterator[tuple[Shard, dict[str, Any]]]:
    """Finished shards as they finish, a bounded number in flight."""
    task = ray.remote(_run_shard)
    waiting = list(reversed(shards))
    running: dict[Any, Shard] = {}
    while waiting or running:
        limit = _TASKS_PER_CPU * _cluster_cpus()
        while waiting and len(running) < limit:
            shard = waiting.pop()
            reference = task.options(
                name=f"{stage}:{shard.key[:8]}",
                num_cpus=1,
                memory=shard.memory_nbytes,
                max_retries=max_retries,
                retry_exceptions=False,
            ).remote(stage, function, shard, args, workspace, code_version())
            running[reference] = shard
        (reference,), _ = ray.wait(list(running), num_returns=1)
        shard = running.pop(reference)
        try:
            yield shard, ray.get(reference)
        except RayTaskError as error:
            raise StageFailedError(
                f"expected shard {shard.key[:8]} of stage {stage} to succeed, "
                f"found {type(error.cause).__name__}: {error.cause}",
                stage=stage,
                cause=error.cause,
            ) from error
        except RayError as error:
            raise StageFailedError(
                f"expected a worker to finish shard {shard.key[:8]} of stage {stage}, lost it "
                f"{max_retries + 1} times ({type(error).__name__}); the node may be out of memory",
                stage=stage,
            ) from error


def _run_shard(
    stage: str,
    function: StageFunction,
    shard: Shard,
    args: tuple[Any, ...],
    workspace: Workspace,
    version: str,
) -> dict[str, Any]:
    """In the worker: run, write the rows, return the statistics."""
    check_same_code(version)
    started = time.monotonic()
    tables = function(shard, *args)
    stats = {
        "seconds": time.monotonic() - started,
        "worker": f"{socket.gethostname()}:{os.getpid()}",
        "peak_memory_nbytes": peak_memory_nbytes(),
    }
    workspace.write_shard(stage, shard.key, tables, stats)
    return stats


def _cluster_cpus() -> int:
    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    return max(int(resources.get("CPU", 1)), 1)


def _check_memory(stage: str, shards: Sequence[Shard]) -> None:
    """Ray would wait forever for a node that is large enough."""
    largest = max((shard.memory_nbytes for shard in shards), default=0)
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    most = max((node["Resources"].get("memory", 0) for node in nodes if node["Alive"]), default=0)
    if largest > most:
        raise StageFailedError(
            f"expected a node with {largest / 1e9:.1f} GB of memory for stage {stage}, found at "
            f"most {most / 1e9:.1f} GB; use a larger node",
            stage=stage,
        )
