"""What an ingest tells the person who started it."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from tstore.cli.tables import human, table
from tstore.cluster.fanout import StageReport
from tstore.cluster.ingest import IngestReport
from tstore.cluster.job import IngestOptions

_MAX_REJECTS = 20


def print_ingest(report: IngestReport, options: IngestOptions, console: Console) -> None:
    """What an ingest did: bytes, rejects, where the time and the memory went."""
    counts = report.counts
    if report.run_id is None and not options.dry_run:
        console.print(f"nothing new in {options.hub}", highlight=False)
    else:
        verb = "predicted" if options.dry_run else "stored"
        raw = max(counts["bytes_in"], 1)
        rows = [
            ("in", human(counts["bytes_in"]), "1.000"),
            ("after dedup", human(counts["bytes_after_dedup"]), _ratio(counts, "after_dedup", raw)),
            (verb, human(counts["bytes_stored"]), _ratio(counts, "stored", raw)),
            ("catalog", human(counts["bytes_catalog"]), _ratio(counts, "catalog", raw)),
        ]
        console.print(_title(report, options), highlight=False)
        console.print(table(None, ("", "bytes", "of raw"), rows))
        console.print(_stage_table(report.stages))
        peak = max((m for s in report.stages.values() for m in s.worker_memory.values()), default=0)
        console.print(
            f"peak memory: driver {human(report.driver_memory_nbytes)}, "
            f"largest worker {human(peak)}",
            highlight=False,
        )
    _print_rejects(report, console)


def _title(report: IngestReport, options: IngestOptions) -> str:
    counts = report.counts
    run = "dry run" if options.dry_run else f"run {report.run_id}"
    return (
        f"{run}: {counts['files']:,} files, {counts['tensors']:,} tensors "
        f"({counts['tensors_unique']:,} new)"
    )


def _ratio(counts: dict[str, int], name: str, raw: int) -> str:
    return f"{counts[f'bytes_{name}'] / raw:.3f}"


def _stage_table(stages: dict[str, StageReport]) -> Table:
    rows = [
        (
            name,
            f"{stage.seconds:.1f}",
            str(stage.shards or ""),
            human(stage.nbytes) if stage.nbytes else "",
            f"{stage.nbytes / 1e6 / stage.task_seconds:,.0f}" if stage.task_seconds else "",
            human(max(stage.worker_memory.values())) if stage.worker_memory else "",
        )
        for name, stage in stages.items()
    ]
    return table(
        "where the time went",
        ("stage", "seconds", "shards", "raw bytes", "MB/s per core", "peak worker memory"),
        rows,
    )


def _print_rejects(report: IngestReport, console: Console) -> None:
    rows = report.rejects.to_pylist()
    if not rows:
        return
    console.print(f"{len(rows)} files rejected:", style="yellow", highlight=False)
    for row in rows[:_MAX_REJECTS]:
        kept = "kept as opaque bytes" if row["stored"] else "NOT stored"
        console.print(
            f"  {row['repo']}/{row['path']}: {row['reason']} ({kept}): {row['message']}",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
    if len(rows) > _MAX_REJECTS:
        console.print(f"  and {len(rows) - _MAX_REJECTS} more in the table rejects")
