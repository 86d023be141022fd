"""Run an ingest with small tasks, so that a small hub gives many; optionally die on the way.

``python small_tasks.py HUB STORE [MOMENT]``: a program of its own, because SIGKILL is real.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

from rich.console import Console

import tstore.catalog.publish
import tstore.cluster.fanout
import tstore.cluster.ingest
from tstore.cluster.ingest import IngestOptions
from tstore.settings import KIB, TaskSettings

SMALL = TaskSettings(scan_nbytes=800 * KIB, encode_nbytes=800 * KIB, opaque_extent_nbytes=64 * KIB)
MOMENTS = ("during-scan", "after-scan", "during-encode", "before-commit", "after-commit")


def die() -> None:
    """What ``kill -9`` does."""
    os.kill(os.getpid(), signal.SIGKILL)


def die_after_shards(stage: str, count: int) -> None:
    """Die when that many shards of a stage have come back."""
    progress = tstore.cluster.fanout.StageProgress
    advance = progress.advance
    seen = 0

    def counting(self: Any, nbytes: int) -> None:
        nonlocal seen
        advance(self, nbytes)
        seen += self._name == stage
        if seen > count:  # the first call tells what was done before
            die()

    progress.advance = counting  # type: ignore[method-assign]


def die_at(moment: str) -> None:
    """Arrange the death."""
    pipeline: Any = tstore.cluster.ingest
    last_step: Any = tstore.catalog.publish
    commit = last_step.commit

    def die_before(*_: Any) -> None:
        die()

    def die_behind(*args: Any) -> None:
        commit(*args)
        die()

    if moment == "during-scan":
        die_after_shards("scan", 2)
    elif moment == "after-scan":
        pipeline.accept = die_before
    elif moment == "during-encode":
        die_after_shards("encode", 2)
    elif moment == "before-commit":
        last_step.commit = die_before
    elif moment == "after-commit":
        last_step.commit = die_behind


def main(hub: str, store: str, moment: str = "") -> None:
    """Ingest; print the report's stages as JSON."""
    die_at(moment)
    options = IngestOptions(hub=hub, store=store, tasks=SMALL)
    report = tstore.cluster.ingest.ingest(options, Console(stderr=True))
    resumed = {name: stage.shards_resumed for name, stage in report.stages.items()}
    print(json.dumps({"run": report.run_id, "counts": report.counts, "resumed": resumed}))


if __name__ == "__main__":
    main(*sys.argv[1:])
