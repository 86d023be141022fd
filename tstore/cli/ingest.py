"""The command that takes a hub into a store; `jobs/ingest.py` is the same for a cluster."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console

from tstore.cli.errors import exit_on_error


def ingest_command(
    hub: Annotated[
        str,
        typer.Option(
            help="Directory of repositories, a single one, or a Hugging Face cache; or s3://bucket/prefix."
        ),
    ],
    store: Annotated[
        str, typer.Option(help="Directory or s3://bucket/prefix; made if it is not there.")
    ],
    codec: Annotated[
        str,
        typer.Option(help="Delta codec; a codec without a base plans no deltas at all."),
    ] = "ulprow",
    include: Annotated[
        list[str] | None,
        typer.Option(help="Only what matches, e.g. 'org/*' or '*.safetensors'; may be repeated."),
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(help="Not what matches; may be repeated.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Plan and predict the savings; write nothing.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="End with one JSON object on stdout.")
    ] = False,
) -> None:
    """Take a model hub into a store, in one run that is all or nothing.

    Exit code 0: everything is in. 1: it is, but some files were rejected; they are listed.
    2: nothing was committed.
    """
    # Ray takes seconds to import, which other commands should not pay.
    from tstore.cli.ingest_report import print_ingest
    from tstore.cluster.ingest import IngestOptions, ingest
    from tstore.settings import PlanSettings
    from tstore_codecs.registry import codec_by_name

    console = Console(stderr=True, highlight=False)
    with exit_on_error(console):
        options = IngestOptions(
            hub=hub,
            store=store,
            include=tuple(include or ()),
            exclude=tuple(exclude or ()),
            dry_run=dry_run,
            plan=PlanSettings.for_codec(codec, needs_base=codec_by_name(codec).needs_base),
        )
        report = ingest(options, console)
    print_ingest(report, options, console)
    if as_json:
        stages = {name: asdict(stage) for name, stage in report.stages.items()}
        print(json.dumps({"run": report.run_id, **report.counts, "stages": stages}))
    sys.exit(1 if report.counts["files_rejected"] else 0)
