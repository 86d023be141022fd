"""An ingest in small tasks for chaos: ``python chaos_job.py HUB STORE [options]``.

A program of its own, because SIGKILL is real. Exit codes and errors are those of the command.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from rich.console import Console

import tstore.catalog.publish
import tstore.cluster.ingest
from support.small_tasks import MOMENTS, SMALL, die_at
from tstore.catalog import lease
from tstore.cli.errors import exit_on_error
from tstore.cluster.fanout import Stage, Tables
from tstore.cluster.ingest import IngestOptions, IngestReport
from tstore.cluster.job import Job
from tstore.settings import TaskSettings

AFTER_SHARDS = 3
"""Shards of a stage that are done before its workers halt."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("hub")
    parser.add_argument("store")
    parser.add_argument("--die", choices=MOMENTS, default="", help="SIGKILL itself there")
    parser.add_argument("--halt-before", default="", help="SIGSTOP itself before this function")
    parser.add_argument("--halt-in", default="", help="a stage in which workers SIGSTOP themselves")
    parser.add_argument("--halting", type=int, default=1, help="how many workers do")
    parser.add_argument("--shards-told-in", type=Path, help="folder with a file per shard of it")
    parser.add_argument("--lease-s", type=float, help="life of an unrenewed lease")
    parser.add_argument("--elsewhere", action="store_true", help="say to be on another machine")
    parser.add_argument("--wait-s", type=float, default=3600.0)
    parser.add_argument("--full-tasks", action="store_true", help="tasks of the usual size")
    return parser.parse_args()


def halt_before(name: str) -> None:
    """Halt right before this function of the commit step is called."""
    last_step: Any = tstore.catalog.publish
    function: Callable[..., Any] = getattr(last_step, name)

    def halting(*args: Any) -> Any:
        os.kill(os.getpid(), signal.SIGSTOP)
        return function(*args)

    setattr(last_step, name, halting)


def halt_workers(name: str, halting: int, folder: Path) -> None:
    """Let workers halt in this stage, so that it cannot end before someone continues or kills them."""
    fan_out = Job.fan_out

    def with_halts(self: Job, stage: Stage, *args: Any) -> list[str]:
        if stage.name == name:
            function = partial(halt_behind, stage.function, halting, folder)
            stage = replace(stage, function=function)
        return fan_out(self, stage, *args)

    Job.fan_out = with_halts  # type: ignore[method-assign]


def halt_behind(function: Callable[..., Tables], halting: int, folder: Path, *shard: Any) -> Tables:
    """In the worker: halt when the work is done and its rows are not yet written."""
    tables = function(*shard)
    if AFTER_SHARDS <= place_in(folder) < AFTER_SHARDS + halting:
        os.kill(os.getpid(), signal.SIGSTOP)
    return tables


def place_in(folder: Path) -> int:
    """How many came here before; a file of that name tells who this is."""
    for place in count():
        with suppress(FileExistsError), (folder / str(place)).open("x") as file:
            file.write(str(os.getpid()))
            return place
    raise AssertionError


def change_lease(lease_s: float | None, *, elsewhere: bool) -> None:
    """Make leases short, and this machine another one."""
    module: Any = lease
    if lease_s is not None:
        module.LEASE_TTL_S, module.LEASE_RENEW_S = lease_s, lease_s / 4
    if elsewhere:
        machine = module._machine
        module._machine = lambda: f"not {machine()}"


def as_json(report: IngestReport) -> str:
    """What the tests look at."""
    stages = {
        name: {
            "shards": stage.shards,
            "resumed": stage.shards_resumed,
            "seconds": stage.seconds,
            "memory": max(stage.worker_memory.values(), default=0),
        }
        for name, stage in report.stages.items()
    }
    memory = report.driver_memory_nbytes
    return json.dumps({"run": report.run_id, "stages": stages, "driver_memory": memory})


def main() -> None:
    args = arguments()
    die_at(args.die)
    if args.halt_before:
        halt_before(args.halt_before)
    if args.halt_in:
        halt_workers(args.halt_in, args.halting, args.shards_told_in)
    change_lease(args.lease_s, elsewhere=args.elsewhere)
    tasks = TaskSettings() if args.full_tasks else SMALL
    options = IngestOptions(hub=args.hub, store=args.store, tasks=tasks, wait_s=args.wait_s)
    console = Console(stderr=True, soft_wrap=True)
    with exit_on_error(console):
        print(as_json(tstore.cluster.ingest.ingest(options, console)))


if __name__ == "__main__":
    main()
