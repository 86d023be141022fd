"""Restore every repository of a store and compare each file with the hub that it came from."""

from __future__ import annotations

import hashlib
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from tstore.catalog import open_store
from tstore.restore.describe import list_repos
from tstore.restore.files import restore_repo


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, hex."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def files_below(root: Path) -> dict[str, str]:
    """SHA-256 of every file below `root`, by relative path."""
    paths = sorted(path for path in root.rglob("*") if path.is_file())
    return {path.relative_to(root).as_posix(): sha256_of(path) for path in paths}


def main(
    store: Annotated[str, typer.Option(help="Store directory.")],
    hub: Annotated[Path, typer.Option(help="Hub directory that was ingested.")],
    to: Annotated[Path, typer.Option(help="Where to restore to.")],
) -> None:
    """Restore and compare; exit code 1 unless all files are identical."""
    opened = open_store(store)
    started = time.monotonic()
    nbytes = 0
    for repo in list_repos(opened):
        report = restore_repo(opened, repo.repo, to / repo.repo)
        nbytes += report.nbytes
    seconds = time.monotonic() - started
    expected, found = files_below(hub), files_below(to)
    different = sorted(path for path in expected | found if expected.get(path) != found.get(path))
    for path in different:
        print(f"different: {path}")
    if different:
        sys.exit(1)
    print(f"restored {len(found)} files, {nbytes / 1e6:.1f} MB in {seconds:.1f} s: all identical")


if __name__ == "__main__":
    typer.run(main)
