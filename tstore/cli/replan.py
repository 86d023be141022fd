"""The command that plans a store again; `jobs/replan.py` is the same for a cluster."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from tstore.cli.errors import exit_on_error
from tstore.cli.tables import human, parse_nbytes, parse_share, plural

if TYPE_CHECKING:
    from tstore.cluster.replan import ReplanReport


def replan_command(
    store: Annotated[str, typer.Option(help="Directory or s3://bucket/prefix.")],
    max_rewrite: Annotated[
        str | None,
        typer.Option(
            help="Bytes of packs to write at most, e.g. 50GiB; the best moves come first."
        ),
    ] = None,
    min_gain: Annotated[
        str,
        typer.Option(help="Rewrite what belongs together only if that saves this much of it."),
    ] = "2%",
    codec: Annotated[str, typer.Option(help="Delta codec.")] = "ulprow",
    everything: Annotated[
        bool,
        typer.Option("--all", help="Also groups without arrivals since the last replan."),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Plan and say what it would gain; write nothing.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="End with one JSON object on stdout.")
    ] = False,
) -> None:
    """Choose bases again for what has arrived, and rewrite what pays, in one commit.

    Old packs stay until tstore gc removes them. Readers are not disturbed. Exit code 2: nothing was
    committed.
    """
    # Ray takes seconds to import, which other commands should not pay.
    from tstore.cli.ingest_report import print_stages
    from tstore.cluster.replan import ReplanOptions, replan
    from tstore.settings import PlanSettings
    from tstore_codecs.registry import codec_by_name

    console = Console(stderr=True, highlight=False)
    budget = None if max_rewrite is None else parse_nbytes(max_rewrite)
    share = parse_share(min_gain)
    with exit_on_error(console):
        options = ReplanOptions(
            store=store,
            max_rewrite_nbytes=budget,
            min_gain=share,
            everything=everything,
            dry_run=dry_run,
            plan=PlanSettings.for_codec(codec, needs_base=codec_by_name(codec).needs_base),
        )
        report = replan(options, console)
    if report.stages:
        print_stages(report.stages, console)
    _print_outcome(report, console, dry_run=dry_run)
    if as_json:
        stages = {name: asdict(stage) for name, stage in report.stages.items()}
        print(json.dumps({"run": report.run_id, **report.counts, "stages": stages}))


def _print_outcome(report: ReplanReport, console: Console, *, dry_run: bool) -> None:
    counts, say = report.counts, partial(console.print, soft_wrap=True)
    if not counts:
        say("nothing has arrived since the last replan; --all looks at everything")
        return
    before = counts["bytes_before"]
    say(
        f"{plural(counts['tensors'], 'tensor')} looked at, {human(before)} stored: "
        f"{counts['moves']:,} of {plural(counts['moves_found'], 'move')} pay"
        + (f", {plural(counts['sets_left'], 'set')} more left for lack of budget"
           if counts["sets_left"] else "")
    )  # fmt: skip
    say(
        f"promised: {human(before)} -> {human(counts['bytes_promised'])} "
        f"({_change(before, counts['bytes_promised'])}) for {human(counts['bytes_to_read'])} read, "
        f"{human(counts['bytes_raw'])} decoded and encoded (about "
        f"{timedelta(seconds=counts['core_seconds'])} of a core), "
        f"{human(counts['bytes_to_write'])} written"
    )
    if dry_run:
        say("dry run: nothing was written")
        return
    say(
        f"came out: {human(before)} -> {human(counts['bytes_after'])} "
        f"({_change(before, counts['bytes_after'])}) for {human(counts['bytes_written'])} written; "
        f"{plural(counts['moves_made'], 'move')} in run {report.run_id}. "
        "The packs it replaces stay until tstore gc removes them."
    )


def _change(before: int, after: int) -> str:
    return f"{after / max(before, 1) - 1:+.2%}"
