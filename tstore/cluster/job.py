"""What the steps of one job share."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import duckdb
from rich.console import Console

from tstore.catalog import Store
from tstore.catalog.workspace import Workspace
from tstore.cluster.environment import code_version
from tstore.cluster.fanout import Shard, Stage, StageReport, fan_out
from tstore.settings import PlanSettings, TaskSettings


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """What every job that writes to a store is told.

    Attributes
    ----------
    store : str
        Location.
    dry_run : bool
        Plan only; nothing is written to the store.
    plan : PlanSettings
    tasks : TaskSettings
    wait_s : float
        How long to wait for another writer.
    """

    store: str
    dry_run: bool = False
    plan: PlanSettings = field(default_factory=PlanSettings)
    tasks: TaskSettings = field(default_factory=TaskSettings)
    wait_s: float = 3600.0

    def intent(self, kind: str, **asked: Any) -> dict[str, Any]:
        """What makes two jobs the same, so that one may finish what the other began.

        Parameters
        ----------
        kind : str
            Kind of the run.
        **asked
            What this kind of job is told beside the common options, as JSON values.
        """
        settings = {"plan": asdict(self.plan), "tasks": asdict(self.tasks)}
        return {"kind": kind, **asked, **settings, "code": code_version()}


@dataclass
class Job:
    """A running job.

    Attributes
    ----------
    options : JobOptions
    store : Store
    connection : DuckDBPyConnection
        The committed catalog; the job registers its own rows beside it.
    workspace : Workspace
        Where tasks leave their rows.
    console : Console
        For progress.
    stages : dict of str to StageReport
        Filled as stages finish.
    """

    options: JobOptions
    store: Store
    connection: duckdb.DuckDBPyConnection
    workspace: Workspace
    console: Console
    stages: dict[str, StageReport] = field(default_factory=dict)

    def fan_out(self, stage: Stage, shards: Iterable[Shard], nbytes: int, *args: Any) -> list[str]:
        """Run a stage on the cluster, keep its report, return the keys of its shards."""
        report, keys = fan_out(
            stage, shards, nbytes, args, self.workspace, self.options.tasks, self.console
        )
        self.stages[stage.name] = report
        return keys

    @contextmanager
    def on_driver(self, stage: str) -> Iterator[None]:
        """Time a stage that runs here."""
        started = time.monotonic()
        yield
        self.stages[stage] = StageReport(seconds=time.monotonic() - started)
