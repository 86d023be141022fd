"""Commands that remove: a repository, taking that back, and garbage."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from tstore.cli.arguments import RepoArgument, StoreArgument
from tstore.cli.errors import exit_on_error
from tstore.cli.tables import human, parse_share, plural

if TYPE_CHECKING:
    from tstore.cluster.gc import GcReport

_WAIT_S = 3600.0
_AGE = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def parse_age(text: str) -> timedelta:
    """A time such as ``7d`` or ``12h``; `typer.BadParameter` if it is none."""
    match = _AGE.fullmatch(text.strip())
    if match is None:
        raise typer.BadParameter(f"expected a time such as 7d, 12h or 0s, found {text!r}")
    return timedelta(**{_UNITS[match[2]]: float(match[1])})


def rm_command(
    store: StoreArgument,
    repo: RepoArgument,
    revision: Annotated[
        str | None, typer.Option(help="Only this revision or ref (default: all).")
    ] = None,
) -> None:
    """Remove a repository. Its data stays until gc has found it unused for a grace period."""
    from tstore.catalog.removal import remove
    from tstore.catalog.store import open_store
    from tstore.cluster.opening import hold_store

    console = Console(stderr=True, highlight=False)
    with exit_on_error(console):
        opened = open_store(store)
        with hold_store(opened, f"rm of {repo}", _WAIT_S, console) as writer:
            gone = remove(opened, writer, repo, revision)
    print(
        f"removed {repo} ({', '.join(gone.revisions)}): {plural(gone.files, 'file')}, "
        f"{human(gone.nbytes)}; gc can free {human(gone.freed_nbytes)}. "
        f"tstore undelete brings it back until then"
    )


def undelete_command(
    store: StoreArgument,
    repo: RepoArgument,
    revision: Annotated[
        str | None, typer.Option(help="Only this revision or ref (default: all removed ones).")
    ] = None,
) -> None:
    """Bring a removed repository back, as long as gc has left its data."""
    from tstore.catalog.removal import take_back
    from tstore.catalog.store import open_store
    from tstore.cluster.opening import hold_store

    console = Console(stderr=True, highlight=False)
    with exit_on_error(console):
        opened = open_store(store)
        with hold_store(opened, f"undelete of {repo}", _WAIT_S, console) as writer:
            back = take_back(opened, writer, repo, revision)
    print(
        f"{repo} ({', '.join(back.revisions)}) is back: {plural(back.files, 'file')}, "
        f"{human(back.nbytes)}"
    )


def gc_command(
    store: Annotated[str, typer.Option(help="Directory or s3://bucket/prefix.")],
    delete: Annotated[
        bool,
        typer.Option("--delete", help="Do it; without this it is only said what would be done."),
    ] = False,
    grace: Annotated[
        str,
        typer.Option(help="How long nothing must have needed a pack; longer than any restore."),
    ] = "7d",
    compact_below: Annotated[
        str, typer.Option(help="Copy what is needed out of packs that need less than this.")
    ] = "50%",
    as_json: Annotated[
        bool, typer.Option("--json", help="End with one JSON object on stdout.")
    ] = False,
) -> None:
    """Remove packs that nothing has needed for a grace period; compact those with little of use.

    The first gc marks them, one after the grace period deletes them. Exit code 2: some may be left,
    the same command goes on.
    """
    # Ray takes seconds to import, which other commands should not pay.
    from tstore.cluster.gc import GcOptions, gc

    console = Console(stderr=True, highlight=False)
    options = GcOptions(
        store=store,
        dry_run=not delete,
        grace=parse_age(grace),
        compact_below=parse_share(compact_below),
    )
    with exit_on_error(console):
        report = gc(options, console)
    _print_gc(report, options.dry_run, grace, console)
    if as_json:
        print(json.dumps({"run": report.run_id, **report.counts}))


def _print_gc(report: GcReport, dry_run: bool, grace: str, console: Console) -> None:
    counts, say = report.counts, partial(console.print, soft_wrap=True)
    did = "would be " if dry_run else ""
    say(
        f"{plural(counts['packs'], 'pack')}, {human(counts['bytes_packs'])}, "
        f"of which {human(counts['bytes_live'])} are needed"
    )
    for name, what in (
        ("marked", f"not needed; deleted once that has been so for {grace}"),
        ("due", f"not needed for {grace}: {did}deleted"),
        ("left_over", f"given up by a gc that was interrupted: {did}deleted"),
    ):
        if counts[name]:
            size = human(counts[f"bytes_{name}"])
            say(f"  {plural(counts[name], 'pack')}, {size}, {what}")
    if counts["sparse"]:
        say(
            f"  {plural(counts['sparse'], 'pack')}, {human(counts['bytes_sparse'])}, with little of "
            f"use: {human(counts['bytes_to_copy'])} {did}copied"
        )
    if counts["stale"]:
        say(
            f"  {plural(counts['stale'], 'part')} of the catalog, {human(counts['bytes_stale'])}, "
            f"merged into others: {did}deleted"
        )
    if dry_run:
        say("dry run: nothing was changed; --delete does it")
