"""Arguments that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

StoreArgument = Annotated[
    str, typer.Argument(metavar="STORE", help="Directory or s3://bucket/prefix.")
]
RepoArgument = Annotated[str, typer.Argument(metavar="REPO", help="Repository id, e.g. org/name.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")]
