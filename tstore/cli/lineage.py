"""The commands ``tstore similar`` and ``tstore lineage``."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console

from tstore.catalog import open_store
from tstore.cli.arguments import JsonOption, RepoArgument, StoreArgument
from tstore.cli.errors import exit_on_error
from tstore.cli.tables import human, print_table
from tstore.lineage.report import Origin, Parent, find_lineage
from tstore.lineage.similar import Neighbour, find_similar

_MAX_NEIGHBOURS = 10
_VERDICTS = {
    "agree": "agree",
    "ancestor": "the card names an ancestor, not the parent",
    "contradict": "CONTRADICTION",
    "unknown": "what the card names is not in this store",
    "unproven": "content has no evidence for what the card says",
}
_RevisionOption = Annotated[str | None, typer.Option(help="Revision or ref (default: main).")]


def similar_command(
    store: StoreArgument,
    repo: RepoArgument,
    revision: _RevisionOption = None,
    tensors: Annotated[
        bool, typer.Option("--tensors", help="Match each tensor with the nearest model's.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show which models are nearest to a repository's, from fingerprints alone."""
    with exit_on_error(Console(stderr=True)):
        neighbours, matches = find_similar(open_store(store), repo, revision, tensors=tensors)
    if as_json:
        found = {model: [asdict(n) for n in near] for model, near in neighbours.items()}
        shown = {"similar": found} | ({"tensors": [asdict(m) for m in matches]} if tensors else {})
        print(json.dumps(shown))
        return
    console = _console()
    columns = ("model", "comparable bytes", "near bytes", "identical tensors", "bits that differ")
    for model, near in neighbours.items():
        if near:
            print_table(console, model, columns, map(_neighbour_cells, near[:_MAX_NEIGHBOURS]))
        else:
            console.print(f"{model}: nothing of the same shapes and dtype", markup=False)
    if tensors:
        rows = [
            (m.name, m.dtype, human(m.nbytes), f"{m.share:.2%}", f"{m.other} {m.counterpart}")
            for m in matches
        ]
        titles = ("tensor", "dtype", "bytes", "bits that differ", "nearest counterpart")
        print_table(console, "tensors", titles, rows)


def lineage_command(
    store: StoreArgument,
    repo: Annotated[
        str | None, typer.Argument(metavar="[REPO]", help="Repository id; all without one.")
    ] = None,
    revision: _RevisionOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what models were made from, as their content says, and whether their card agrees."""
    with exit_on_error(Console(stderr=True)):
        origins = find_lineage(open_store(store), repo, revision)
    if as_json:
        print(json.dumps({"lineage": [asdict(origin) for origin in origins]}))
        return
    console = _console()
    for origin in origins:
        _print_origin(origin, console)


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else 200, highlight=False, soft_wrap=True)


def _neighbour_cells(found: Neighbour) -> tuple[str, ...]:
    shares = (found.compared, found.near, found.identical)
    return (found.model, *(f"{share:.0%}" for share in shares), f"{found.distance:.2%}")


def _print_origin(origin: Origin, console: Console) -> None:
    lines = []
    if origin.same_content_as:
        lines.append(f"same content as {', '.join(origin.same_content_as)}")
    if origin.copy is not None:
        lines.append(f"same weights in another dtype: {origin.copy}")
    inferred = [parent for parent in origin.parents if parent.inferred]
    if not origin.parents:
        lines.append("no evidence: nothing in the store is near in the same dtype")
    elif origin.undirected:
        lines.append("one relative, and no evidence which of the two came first")
    elif not inferred:
        lines.append("root of its family: nothing that it was made from is in the store")
    if len(inferred) > 1:
        lines.append("merge of:")
    lines += [_told(parent) for parent in origin.parents]
    for path, names in origin.claims.items():
        lines.append(f"{path} says {', '.join(names)}")
    if origin.claims:
        lines.append(f"card and content: {_VERDICTS[origin.verdict]}")
    console.print(origin.model, style="bold", markup=False)
    for line in lines:
        console.print(f"  {line}", markup=False)


def _told(parent: Parent) -> str:
    names = " = ".join((parent.model, *parent.same_content_as))
    kind = "made from" if parent.inferred else "also near"
    if parent.distance is None:
        return f"{kind} {names} (another dtype)"
    return (
        f"{kind} {names}: {parent.distance:.2%} of bits differ, "
        f"{parent.identical:.0%} of tensors identical, {parent.nearest:.0%} nearest to it"
    )
