"""Run a stage on every shard as Ray tasks; knows no tensors.

A stage function is a plain function ``(shard, *args) -> {table name: rows}``. Its worker writes
the rows to the workspace; only counts come back. Finished shards are not run again. Of a workspace
that no worker reaches, the driver writes the rows, which then come back as well.
"""

from __future__ import annotations

import os
import resource
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import chain
from typing import Any, Protocol, Self

import pyarrow as pa
import ray
from ray import cloudpickle as pickle
from ray.exceptions import RayError, RayTaskError
from rich.console import Console

from tstore.activity import Ledger, Spent, recorded
from tstore.catalog.workspace import Workspace
from tstore.cluster.environment import check_same_code, code_version
from tstore.cluster.progress import StageProgress
from tstore.cluster.session import node_wait_s
from tstore.errors import ObjectStoreUnavailableError, StageFailedError, WorkerLostError
from tstore.settings import MIB, TaskSettings

_MIN_WEIGHT = MIB
"""A shard counts as at least this many bytes in flight, so that empty ones are bounded too."""
_LOOK_AT_NODES_S = 5.0


class Shard(Protocol):
    """What a stage works on."""

    @property
    def key(self) -> str: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def memory_nbytes(self) -> int: ...
    def halves(self) -> tuple[Self, ...]:
        """The same work as two shards; nothing if it is one piece."""


Tables = dict[str, pa.Table]


@dataclass(frozen=True)
class Stage:
    """What is done to every shard.

    Attributes
    ----------
    name : str
        Its folder in the workspace.
    function : callable
        ``(shard, *args) -> {table name: rows}``.
    rows_of_lost : callable or None
        ``(shard, error) -> {table name: rows}`` for a shard of one piece that kills every worker
        that takes it; None if that must stop the run.
    """

    name: str
    function: Callable[..., Tables]
    rows_of_lost: Callable[[Any, WorkerLostError], Tables] | None = None


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
    activities : dict of str to Spent
        What the tasks spent their time on.
    worker_memory : dict of str to int
        Peak resident bytes of each worker process.
    """

    seconds: float = 0.0
    task_seconds: float = 0.0
    nbytes: int = 0
    shards: int = 0
    shards_resumed: int = 0
    activities: Ledger = field(default_factory=dict)
    worker_memory: dict[str, int] = field(default_factory=dict)

    def add(self, stats: dict[str, Any]) -> None:
        """Count one finished task."""
        self.task_seconds += stats["seconds"]
        for activity, spent in stats["activities"].items():
            self.activities.setdefault(activity, Spent()).add(Spent(**spent))
        worker = stats["worker"]
        known = self.worker_memory.get(worker, 0)
        self.worker_memory[worker] = max(known, stats["peak_memory_nbytes"])


def peak_memory_nbytes() -> int:
    """Peak resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def fan_out(
    stage: Stage,
    shards: Iterable[Shard],
    nbytes: int,
    args: tuple[Any, ...],
    workspace: Workspace,
    tasks: TaskSettings,
    console: Console,
) -> tuple[StageReport, list[str]]:
    """Run a stage on each shard that is not finished; return when all are.

    Parameters
    ----------
    stage : Stage
    shards : iterable of Shard
        Taken one by one, as there is room for them: they need not exist all at once.
    nbytes : int
        Raw bytes of all shards, for the progress.
    args : tuple
        Further arguments of the stage function.
    workspace : Workspace
        Where the rows go.
    tasks : TaskSettings
    console : Console

    Returns
    -------
    report : StageReport
    keys : list of str
        Shards whose rows together are the result of the stage.

    Raises
    ------
    StageFailedError
        A shard raised, or killed its worker more than ``tasks.max_retries`` times.
    """
    started = time.monotonic()
    report, keys = StageReport(), list[str]()
    done = workspace.finished(stage.name)
    with StageProgress(console, stage.name, nbytes) as progress:

        def unfinished() -> Iterator[Shard]:
            for shard in shards:
                report.shards += 1
                report.nbytes += shard.nbytes
                if shard.key not in done:
                    yield shard
                    continue
                report.shards_resumed += 1
                keys.append(shard.key)
                progress.advance(shard.nbytes)

        for shard, stats in _Flight(stage, args, workspace, tasks, console).run(unfinished()):
            keys.append(shard.key)
            report.add(stats)
            progress.advance(shard.nbytes)
    report.seconds = time.monotonic() - started
    return report, keys


class _Flight:
    """The tasks of a stage that are with Ray, a bounded number of bytes at a time."""

    def __init__(
        self,
        stage: Stage,
        args: tuple[Any, ...],
        workspace: Workspace,
        tasks: TaskSettings,
        console: Console,
    ) -> None:
        self._stage, self._args, self._workspace, self._tasks = stage, args, workspace, tasks
        self._console = console
        self._alone_since: float | None = None
        self._task = ray.remote(_run_shard)
        self._running: dict[Any, Shard] = {}
        self._nbytes = 0

    def run(self, shards: Iterator[Shard]) -> Iterator[tuple[Shard, dict[str, Any]]]:
        """Shards with their statistics, as they finish."""
        waiting = next(shards, None)
        while waiting is not None or self._running:
            while waiting is not None and self._has_room(waiting):
                self._submit(waiting)
                waiting = next(shards, None)
            reference = self._wait()
            shard = self._running.pop(reference)
            self._nbytes -= _weight(shard)
            try:
                yield shard, self._result(reference, shard)
            except WorkerLostError as error:
                if halves := shard.halves():
                    shards = chain([] if waiting is None else [waiting], shards)
                    shards = chain(halves, shards)
                    waiting = next(shards, None)
                elif self._stage.rows_of_lost is not None:
                    yield shard, self._write(shard, self._stage.rows_of_lost(shard, error))
                else:
                    raise StageFailedError(str(error), stage=self._stage.name) from error

    def _has_room(self, shard: Shard) -> bool:
        limit = self._tasks.in_flight_nbytes * _cluster_cpus()
        return not self._running or self._nbytes + _weight(shard) <= limit

    def _wait(self) -> Any:
        """The next task that ended; as long as no node is large enough, one may yet join."""
        while True:
            ready, _ = ray.wait(list(self._running), num_returns=1, timeout=_LOOK_AT_NODES_S)
            if ready:
                self._alone_since = None
                return ready[0]
            self._check_nodes()

    def _check_nodes(self) -> None:
        """Ray itself would wait forever for a node that is large enough."""
        needed = max(shard.memory_nbytes for shard in self._running.values())
        most = _largest_node_nbytes()
        if needed <= most:
            self._alone_since = None
            return
        now = time.monotonic()
        if self._alone_since is None:
            self._alone_since = now
            self._console.print(
                f"{self._stage.name} waits for a node with {needed / 1e9:.1f} GB of memory",
                highlight=False,
            )
        if now - self._alone_since >= node_wait_s():
            raise StageFailedError(
                f"expected a node with {needed / 1e9:.1f} GB of memory for stage "
                f"{self._stage.name}, found at most {most / 1e9:.1f} GB; use a larger node",
                stage=self._stage.name,
            )

    def _submit(self, shard: Shard) -> None:
        parts = self._stage, shard, self._args, self._workspace
        work = pickle.dumps(parts)  # type: ignore[no-untyped-call]
        reference = self._task.options(
            name=f"{self._stage.name}:{shard.key[:8]}",
            num_cpus=1,
            memory=shard.memory_nbytes,
            max_retries=self._tasks.max_retries,
            retry_exceptions=[ObjectStoreUnavailableError],
        ).remote(code_version(), work)
        self._running[reference] = shard
        self._nbytes += _weight(shard)

    def _result(self, reference: Any, shard: Shard) -> dict[str, Any]:
        stage = self._stage.name
        try:
            found: tuple[Tables, dict[str, Any]] = ray.get(reference)
        except RayTaskError as error:
            raise StageFailedError(
                f"expected shard {shard.key[:8]} of stage {stage} to succeed, "
                f"found {type(error.cause).__name__}: {error.cause}",
                stage=stage,
                cause=error.cause,
            ) from error
        except RayError as error:
            raise WorkerLostError(
                f"expected a worker to finish shard {shard.key[:8]} of stage {stage}, lost it "
                f"{self._tasks.max_retries + 1} times ({type(error).__name__}); the node may be "
                "out of memory",
                stage=stage,
            ) from error
        tables, stats = found
        if not self._workspace.shared:
            self._workspace.write_shard(stage, shard.key, tables, stats)
        return stats

    def _write(self, shard: Shard, tables: Tables) -> dict[str, Any]:
        stats = _stats({}, 0.0)
        self._workspace.write_shard(self._stage.name, shard.key, tables, stats)
        return stats


def _weight(shard: Shard) -> int:
    return max(shard.nbytes, _MIN_WEIGHT)


def _run_shard(version: str, work: bytes) -> tuple[Tables, dict[str, Any]]:
    """In the worker: run, write the rows, return the statistics, and rows that it may not write.

    Other code may not even have the classes of `work`: so it is unpickled after the check.
    """
    check_same_code(version)
    stage, shard, args, workspace = pickle.loads(work)
    started = time.monotonic()
    with recorded() as ledger:
        tables = stage.function(shard, *args)
    stats = _stats(ledger, time.monotonic() - started)
    if not workspace.shared:
        return tables, stats
    workspace.write_shard(stage.name, shard.key, tables, stats)
    return {}, stats


def _stats(ledger: Mapping[str, Spent], seconds: float) -> dict[str, Any]:
    return {
        "seconds": seconds,
        "activities": {activity: asdict(spent) for activity, spent in ledger.items()},
        "worker": f"{socket.gethostname()}:{os.getpid()}",
        "peak_memory_nbytes": peak_memory_nbytes(),
    }


def _cluster_cpus() -> int:
    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    return max(int(resources.get("CPU", 1)), 1)


def _largest_node_nbytes() -> float:
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return max((node["Resources"].get("memory", 0) for node in nodes if node["Alive"]), default=0)
