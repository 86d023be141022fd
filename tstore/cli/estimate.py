"""The command that says what a hub would save before anything is ingested."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console

from tstore.cli.arguments import JsonOption
from tstore.cli.errors import exit_on_error
from tstore.cli.tables import human, parse_nbytes, parse_share, plural, print_table
from tstore.estimate.estimate import EstimateOptions, Part, estimate_hub
from tstore.settings import PlanSettings
from tstore_codecs.registry import codec_by_name

_MIN_BYTES = 2.0
"""Fewer bytes would be taken for a share."""


def parse_sample(text: str) -> float:
    """A share, ``5%`` or ``0.05``, or bytes, ``500MB``: the first as a number up to 1.

    Raises
    ------
    typer.BadParameter
        It is neither, or nothing at all.
    """
    is_size = text.strip().endswith("B")
    try:
        found = float(parse_nbytes(text)) if is_size else parse_share(text)
    except typer.BadParameter:
        found = 0.0
    if not found:
        raise typer.BadParameter(
            f"expected a share such as 5% or bytes such as 500MB, found {text!r}"
        )
    return max(found, _MIN_BYTES) if is_size else found


def estimate_command(
    hub: Annotated[
        str,
        typer.Argument(metavar="HUB", help="What an ingest takes: a directory or s3://bucket/…"),
    ],
    sample: Annotated[
        float | None,
        typer.Option(
            parser=parse_sample,
            metavar="SHARE|BYTES",
            help="What to read, e.g. 10% or 2GB (default: 5 %, at least 67 MB, at most 4.3 GB).",
        ),
    ] = None,
    codec: Annotated[str, typer.Option(help="Codec, as of an ingest.")] = "ulprow",
    include: Annotated[
        list[str] | None, typer.Option(help="Only what matches; may be repeated.")
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(help="Not what matches; may be repeated.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Another seed looks at other places.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Predict what a hub would take in a new store, from a small sample; nothing is written."""
    with exit_on_error(Console(stderr=True)):
        plan = PlanSettings.for_codec(codec, needs_base=codec_by_name(codec).needs_base)
        patterns = tuple(include or ()), tuple(exclude or ())
        found = estimate_hub(EstimateOptions(hub, *patterns, sample, seed, plan))
    if as_json:
        print(json.dumps(asdict(found)))
        return
    console = Console(highlight=False)
    rows = [(name, *_cells(part)) for name, part in [*found.dtypes.items(), ("all", found.total)]]
    columns = ("", "raw", "stored", "of raw", "95 %", "duplicates", "alone", "deltas")
    total = found.total
    print_table(console, f"{plural(found.files, 'file')}, {human(total.nbytes)}", columns, rows)
    console.print(
        f"predicted: {human(total.stored)}, {total.ratio:.3f} ± {total.error:.3f} of raw, beside "
        f"the catalog; {human((1 - total.dedup) * total.nbytes)} after dedup. Read: "
        f"{human(found.sampled)} ({found.sampled / total.nbytes:.1%}) and the headers.",
        soft_wrap=True,
    )
    for source in found.unreadable:
        console.print(f"cannot be read, left out: {source}", markup=False, soft_wrap=True)


def _cells(part: Part) -> tuple[str, ...]:
    sizes = human(part.nbytes), human(part.stored)
    shares = (f"{share:.1%}" for share in (part.dedup, part.alone, part.delta))
    return (*sizes, f"{part.ratio:.3f}", f"± {part.error:.3f}", *shares)
