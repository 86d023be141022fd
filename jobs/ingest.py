"""Take a model hub into a tstore store: the program to submit to a Ray cluster."""

import typer

from tstore.cli.ingest import ingest_command

if __name__ == "__main__":
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(ingest_command)
    app()
