"""Read a store again and again until stdin ends: ``python chaos_reader.py STORE REPO FOLDER``.

Prints the number of rounds and the seconds of the longest. Anything that fails ends it.
"""

from __future__ import annotations

import json
import select
import sys
import tempfile
import time
from pathlib import Path

from support.hubs import file_hashes
from tstore.catalog import open_store
from tstore.restore.describe import list_repos
from tstore.restore.files import restore_repo
from tstore.restore.verify import verify

_PAUSE_S = 0.5
"""Two cores are for the job."""


def look(store: str, repo: str, expected: dict[str, str]) -> None:
    """What users do while a job runs."""
    opened = open_store(store)
    assert repo in [found.repo for found in list_repos(opened)]
    with tempfile.TemporaryDirectory() as folder:
        restore_repo(opened, repo, Path(folder))
        assert file_hashes(Path(folder)) == expected
    assert not (problems := verify(opened).problems), problems


def main(store: str, repo: str, folder: str) -> None:
    expected = file_hashes(Path(folder))
    seconds = []
    stopped = False
    while not stopped:
        started = time.monotonic()
        look(store, repo, expected)
        seconds.append(time.monotonic() - started)
        stopped = bool(select.select([sys.stdin], [], [], _PAUSE_S)[0])
    print(json.dumps({"rounds": len(seconds), "longest_s": max(seconds)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
