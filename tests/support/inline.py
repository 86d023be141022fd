"""The whole ingest pipeline in this process: the same code, with the fan-out replaced."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from operator import itemgetter
from pathlib import Path
from typing import Any
from unittest import mock

from rich.console import Console

from tstore.catalog.workspace import Workspace
from tstore.cluster.fanout import Stage, StageReport
from tstore.cluster.gc import GcOptions, GcReport, gc
from tstore.cluster.ingest import IngestOptions, IngestReport, ingest
from tstore.cluster.replan import ReplanOptions, ReplanReport, replan
from tstore.cluster.verify import verify_on_cluster
from tstore.restore.verify import VerifyReport

BeforeShard = Callable[[str, int], None]


def stop_at(stage: str, number: int) -> BeforeShard:
    """The process ends right before a shard."""

    def stop(name: str, shard: int) -> None:
        if (name, shard) == (stage, number):
            raise KeyboardInterrupt

    return stop


def run_stage_inline(
    stage: Stage,
    shards: Iterable[Any],
    nbytes: int,
    args: tuple[Any, ...],
    workspace: Workspace,
    *_: Any,
    before_shard: BeforeShard = lambda stage, number: None,
    last_first: bool = False,
) -> tuple[StageReport, list[str]]:
    """`tstore.cluster.fanout.fan_out` without Ray."""
    shards = list(shards)
    done = workspace.finished(stage.name)
    report = StageReport(shards=len(shards), shards_resumed=sum(s.key in done for s in shards))
    for number, shard in sorted(enumerate(shards), reverse=last_first, key=itemgetter(0)):
        before_shard(stage.name, number)
        if shard.key not in done:
            workspace.write_shard(stage.name, shard.key, stage.function(shard, *args), {})
    return report, [shard.key for shard in shards]


def ingest_inline(
    hub: Path | str,
    store: Path | str,
    *,
    before_shard: BeforeShard = lambda stage, number: None,
    last_first: bool = False,
    **options: Any,
) -> IngestReport:
    """Ingest in this process.

    `before_shard` is called with the stage and the shard's number. With `last_first` the shards
    of a stage run in reverse: a cluster promises no order.
    """

    with _without_ray("ingest", before_shard=before_shard, last_first=last_first) as console:
        return ingest(IngestOptions(hub=str(hub), store=str(store), **options), console)


def replan_inline(
    store: Path | str, *, before_shard: BeforeShard = lambda stage, number: None, **options: Any
) -> ReplanReport:
    """Plan a store again in this process; see `ingest_inline`."""
    with _without_ray("replan", before_shard=before_shard) as console:
        return replan(ReplanOptions(store=str(store), **options), console)


def gc_inline(
    store: Path | str, *, before_shard: BeforeShard = lambda stage, number: None, **options: Any
) -> GcReport:
    """Collect garbage in this process, for good and without a grace period unless told otherwise."""
    settings = {"grace": timedelta(0), **options}
    with _without_ray("gc", before_shard=before_shard) as console:
        return gc(GcOptions(store=str(store), **settings), console)


def verify_inline(store: Path | str) -> VerifyReport:
    """The verify job in this process."""
    with _without_ray("verify") as console:
        return verify_on_cluster(str(store), console)


@contextmanager
def _without_ray(job: str, **how: Any) -> Iterator[Console]:
    def fan_out(*args: Any) -> tuple[StageReport, list[str]]:
        return run_stage_inline(*args, **how)

    with (
        mock.patch("tstore.cluster.job.fan_out", fan_out),
        mock.patch(f"tstore.cluster.{job}.ray_session", nullcontext),
        mock.patch("os.fsync"),  # no test cuts the power, and an ingest syncs 170 times
    ):
        yield Console(file=io.StringIO())
