"""An ingest in small tasks for chaos: ``python chaos_job.py HUB STORE [options]``.

A program of its own, because SIGKILL is real. Exit codes and errors are those of the command.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
from collections.abc import Callable
from typing import Any

from rich.console import Console

import tstore.catalog.publish
import tstore.cluster.ingest
from support.small_tasks import MOMENTS, SMALL, die_at
from tstore.catalog import lease
from tstore.cli.errors import exit_on_error
from tstore.cluster.ingest import IngestOptions, IngestReport
from tstore.settings import TaskSettings


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("hub")
    parser.add_argument("store")
    parser.add_argument("--die", choices=MOMENTS, default="", help="SIGKILL itself there")
    parser.add_argument("--halt-before", default="", help="SIGSTOP itself before this function")
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
    change_lease(args.lease_s, elsewhere=args.elsewhere)
    tasks = TaskSettings() if args.full_tasks else SMALL
    options = IngestOptions(hub=args.hub, store=args.store, tasks=tasks, wait_s=args.wait_s)
    console = Console(stderr=True, soft_wrap=True)
    with exit_on_error(console):
        print(as_json(tstore.cluster.ingest.ingest(options, console)))


if __name__ == "__main__":
    main()
