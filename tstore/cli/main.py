"""The command line ``tstore``: look into a store, restore from it, verify it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

import tstore
from tstore.catalog import open_store
from tstore.cli.arguments import RepoArgument, StoreArgument
from tstore.cli.errors import exit_on_error
from tstore.cli.estimate import estimate_command
from tstore.cli.ingest import ingest_command
from tstore.cli.lineage import lineage_command, similar_command
from tstore.cli.removing import gc_command, rm_command, undelete_command
from tstore.cli.replan import replan_command
from tstore.cli.tables import human, plural, print_table
from tstore.cli.verifying import print_verification
from tstore.restore.describe import describe_repo, list_repos
from tstore.restore.files import restore_repo
from tstore.restore.lookup import StoredFile
from tstore.restore.verify import verify as verify_store

app = typer.Typer(
    help="Lossless, tensor-centric storage for AI model hubs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
_errors = Console(stderr=True)

RevisionOption = Annotated[
    str | None,
    typer.Option(help="Revision or ref (default: main); REVISION@RUN as it was after that run."),
]


def _progress() -> Progress:
    """A bar on a terminal; elsewhere nothing, not even the empty line that it would leave."""
    return Progress(console=_errors, transient=True, disable=not _errors.is_terminal)


app.command("ingest")(ingest_command)
app.command("replan")(replan_command)
app.command("rm")(rm_command)
app.command("undelete")(undelete_command)
app.command("gc")(gc_command)
app.command("estimate")(estimate_command)
app.command("similar")(similar_command)
app.command("lineage")(lineage_command)


@app.command("ls")
def list_command(store: StoreArgument) -> None:
    """List repositories, one a line, the id first."""
    with exit_on_error(_errors):
        repos = list_repos(open_store(store))
    width = max((len(repo.repo) for repo in repos), default=0)
    for repo in repos:
        revisions = ", ".join(repo.revisions)
        files = plural(repo.files, "file")
        print(f"{repo.repo:<{width}}  {files:>11}  {human(repo.nbytes):>9}  {revisions}")


@app.command()
def info(store: StoreArgument, repo: RepoArgument, revision: RevisionOption = None) -> None:
    """Show the files and tensors of a repository: roles, bases, codecs, bytes."""
    with exit_on_error(_errors):
        description = describe_repo(open_store(store), repo, revision)
    console = Console(width=None if sys.stdout.isatty() else 200)
    files = [
        (f.path, human(f.nbytes), str(len(f.layout)), f.sha256[:16]) for f in description.files
    ]
    title = f"{repo} at {description.revision}"
    print_table(console, title, ("file", "bytes", "extents", "SHA-256"), files)
    tensors = [tensor.cells() for tensor in description.tensors]
    columns = ("name", "dtype", "shape", "role", "codec", "bytes", "stored", "ratio", "base")
    print_table(console, "tensors", columns, tensors)
    stored, raw = description.stored_nbytes, description.nbytes
    console.print(
        f"{human(raw)} raw; its blobs take {human(stored)} ({stored / max(raw, 1):.3f}), "
        f"{human(description.shared_nbytes)} of which other repositories use too",
        highlight=False,
    )


@app.command()
def restore(
    store: StoreArgument,
    repo: RepoArgument,
    destination: Annotated[Path, typer.Argument(metavar="DEST", help="Directory to write to.")],
    revision: RevisionOption = None,
) -> None:
    """Restore a repository byte for byte below DEST; every file's SHA-256 is checked."""
    with exit_on_error(_errors), _progress() as progress:
        task = progress.add_task(repo, total=None)

        def on_file(file: StoredFile) -> None:
            progress.update(task, description=f"{repo}/{file.path}")

        report = restore_repo(
            open_store(store), repo, destination, revision=revision, on_file=on_file
        )
    kept = f" ({report.files_kept} were there already)" if report.files_kept else ""
    print(f"{plural(report.files, 'file')}, {human(report.nbytes)}, to {destination}{kept}")


@app.command()
def verify(
    store: StoreArgument,
    read_data: Annotated[
        bool, typer.Option("--read-data", help="Also decode every file and check its SHA-256.")
    ] = False,
) -> None:
    """Check a store. Exit code 1 when anything is missing or damaged."""
    with exit_on_error(_errors), _progress() as progress:
        task = progress.add_task("verify", total=None)
        report = verify_store(
            open_store(store),
            read_data=read_data,
            on_file=lambda file: progress.update(task, description=f"{file.repo}/{file.path}"),
        )
    print_verification(report, read_data=read_data)
    sys.exit(1 if report.problems else 0)


def _print_version(show: bool) -> None:
    if show:
        print(tstore.__version__)
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Version.")
    ] = False,
) -> None:
    """Lossless, tensor-centric storage for AI model hubs."""


def main() -> None:
    """Entry point."""
    app()
