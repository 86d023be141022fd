"""What an ingest tells the person who started it."""

from __future__ import annotations

from rich.console import Console

from tstore.cli.tables import human, plural, print_table
from tstore.cluster.fanout import StageReport
from tstore.cluster.ingest import IngestOptions, IngestReport

_MAX_REJECTS = 20
_MAX_WORKERS = 8


def print_ingest(report: IngestReport, options: IngestOptions, console: Console) -> None:
    """What an ingest did: rejects, where time and memory went, and the bytes last."""
    _print_rejects(report, console)
    if report.stages:
        print_stages(report.stages, console)
        _print_memory(report, console)
    if report.run_id is None and not options.dry_run:
        console.print(f"nothing new in {options.hub}: the store already holds what can be read")
    else:
        _print_bytes(report, options, console)


def _print_bytes(report: IngestReport, options: IngestOptions, console: Console) -> None:
    counts = report.counts
    raw = max(counts["bytes_in"], 1)
    taken_in = ", ".join(
        (
            plural(counts["files"], "file"),
            plural(counts["tensors"], "tensor") + f" ({counts['tensors_unique']:,} new)",
        )
    )
    rows = [("raw", "in"), ("after dedup", "after_dedup")]
    if options.dry_run:
        title = f"dry run: {taken_in}; nothing was written"
        rows.append(("predicted packs", "stored"))
    else:
        title = f"run {report.run_id}: {taken_in}"
        rows += [("packs", "stored"), ("catalog", "catalog")]
    cells = [
        (name, human(nbytes := counts[f"bytes_{key}"]), f"{nbytes / raw:.3f}") for name, key in rows
    ]
    print_table(console, title, ("", "bytes", "of raw"), cells)


def print_stages(stages: dict[str, StageReport], console: Console) -> None:
    """Where the time of a job went: its stages, and what their tasks did."""
    rows = [
        (
            name,
            f"{stage.seconds:.1f}",
            str(stage.shards or ""),
            human(stage.nbytes) if stage.nbytes else "",
            f"{stage.nbytes / 1e6 / stage.seconds:,.0f}" if stage.nbytes else "",
            f"{stage.nbytes / 1e6 / stage.task_seconds:,.0f}" if stage.task_seconds else "",
            human(max(stage.worker_memory.values())) if stage.worker_memory else "",
        )
        for name, stage in stages.items()
    ]
    columns = ("stage", "seconds", "shards", "raw bytes", "MB/s", "MB/s per core", "peak memory")
    print_table(console, "where the time went", columns, rows)
    work = [
        (
            f"{name}: {activity}",
            human(spent.nbytes),
            f"{spent.seconds:.1f}",
            f"{spent.seconds / stage.task_seconds:.0%}",
            f"{spent.nbytes / 1e9 / spent.seconds:.2f}" if spent.seconds else "",
        )
        for name, stage in stages.items()
        for activity, spent in stage.activities.items()
    ]
    if work:
        titles = ("what the tasks did", "bytes", "core seconds", "of its stage", "GB/s per core")
        print_table(console, None, titles, work)


def _print_memory(report: IngestReport, console: Console) -> None:
    """Peak memory of the driver and of each worker, the largest first."""
    peaks: dict[str, int] = {}
    for stage in report.stages.values():
        for worker, nbytes in stage.worker_memory.items():
            peaks[worker] = max(peaks.get(worker, 0), nbytes)
    largest = sorted(peaks.values(), reverse=True)
    shown = ", ".join(human(nbytes) for nbytes in largest[:_MAX_WORKERS])
    if len(largest) > _MAX_WORKERS:
        shown += f" and {len(largest) - _MAX_WORKERS} smaller ones"
    driver = human(report.driver_memory_nbytes)
    console.print(f"peak memory: driver {driver}; workers {shown}\n")


def _print_rejects(report: IngestReport, console: Console) -> None:
    rows = report.rejects.to_pylist()
    for stored, what in (
        (True, "cannot be parsed; kept as opaque bytes, restored like any other"),
        (False, "NOT stored"),
    ):
        some = [row for row in rows if row["stored"] is stored]
        if not some:
            continue
        console.print(f"{plural(len(some), 'file')} {what}:", style="yellow", highlight=False)
        for row in some[:_MAX_REJECTS]:
            line = f"  {row['repo']}/{row['path']}: {row['reason']}: {row['message']}"
            console.print(line, highlight=False, markup=False, soft_wrap=True)
        if len(some) > _MAX_REJECTS:
            console.print(f"  and {len(some) - _MAX_REJECTS} more, in the table rejects")
