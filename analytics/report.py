"""Tell what a store is worth: a page of text, one HTML file, or JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from reporting.numbers import collect
from reporting.page import render
from reporting.text import print_report
from tstore.catalog import open_store
from tstore.cli.errors import exit_on_error


def main(
    store: Annotated[str, typer.Option(help="Directory or s3://bucket/prefix.")],
    html: Annotated[
        Path | None, typer.Option(help="Write one self-contained page to this file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Tell what a store is worth. Exit code 2: the store cannot be read, or nothing written."""
    with exit_on_error(Console(stderr=True)):
        numbers = collect(open_store(store))
        if html is not None:
            html.write_text(render(numbers), encoding="utf-8")
    if as_json:
        print(json.dumps(numbers))
    elif html is None:
        print_report(numbers, Console(width=None if sys.stdout.isatty() else 120))


if __name__ == "__main__":
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(main)
    app()
