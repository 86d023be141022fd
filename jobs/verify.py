"""Read everything that a store holds and compare it: ``tstore verify --read-data`` on a cluster."""

import sys
from typing import Annotated

import typer
from rich.console import Console

from tstore.cli.errors import exit_on_error
from tstore.cli.verifying import print_verification
from tstore.cluster.verify import verify_on_cluster


def main(
    store: Annotated[str, typer.Option(help="Directory or s3://bucket/prefix.")],
) -> None:
    """Check a store, all of its bytes. Exit code 1 when anything is missing or damaged."""
    console = Console(stderr=True, highlight=False)
    with exit_on_error(console):
        report = verify_on_cluster(store, console)
    print_verification(report, read_data=True)
    sys.exit(1 if report.problems else 0)


if __name__ == "__main__":
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(main)
    app()
