"""Start jobs, look on while they run, and compare what they leave."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count, takewhile
from pathlib import Path
from typing import IO, Any

from support import chaos_job, chaos_reader
from support.chaos_job import AFTER_SHARDS
from support.inline import ingest_inline
from support.two_nodes import TIMEOUT_S, is_stopped, wait_until
from tstore.catalog import keys, open_store
from tstore.catalog.schema import TABLES
from tstore.objects import open_objects
from tstore.restore.verify import verify

SEED_REPO = "seed/model"
_TESTS = Path(__file__).parents[1]
Environment = dict[str, str]


class RunningJob:
    """Made by `running`.

    Parameters
    ----------
    process : Popen
    store : str
        Where it writes to.
    out, err : file
        Its stdout and stderr.
    shards : Path
        Where shards are told of, see `chaos_job.place_in`.
    """

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        store: str,
        out: IO[bytes],
        err: IO[bytes],
        shards: Path,
    ) -> None:
        self.process = process
        self._store, self._out, self._err, self._shards = store, out, err, shards
        self._started = time.monotonic()

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def told(self) -> str:
        """What it wrote to stderr so far; lines are not cut."""
        return _content(self._err)

    def halted_workers(self) -> list[int]:
        """Workers that halted themselves, the first one first."""
        told = (self._shards / str(AFTER_SHARDS + n) for n in count())
        workers = [int(file.read_text() or 0) for file in takewhile(Path.exists, told)]
        return [worker for worker in workers if is_stopped(worker)]

    def wait_for_halt(self, stage: str, workers: int = 1) -> list[int]:
        """Until that many workers halted in a stage, and the shards before theirs are finished."""
        self.wait_until(lambda: len(self.halted_workers()) >= workers, f"halts in {stage}")
        self.wait_until(lambda: finished(self._store, stage) >= AFTER_SHARDS, f"shards of {stage}")
        return self.halted_workers()

    def wait_until(self, holds: Callable[[], bool], what: str) -> None:
        """Until it holds, while the job is at work."""

        def still() -> bool:
            assert self.process.poll() is None, f"expected a running job, found:\n{self.told}"
            return holds()

        wait_until(still, what)

    def ends(self, code: int = 0) -> str:
        """Wait for its end with this exit code; what it wrote to stderr."""
        found = self.process.wait(TIMEOUT_S)
        assert found == code, self.told
        return self.told

    def report(self) -> dict[str, Any]:
        """Wait for its good end; see `chaos_job.as_json`, and the seconds it took."""
        self.ends()
        report: dict[str, Any] = json.loads(_content(self._out).splitlines()[-1])
        return {**report, "seconds": time.monotonic() - self._started}


def _content(file: IO[bytes]) -> str:
    """What lies in a file that another process appends to, whose position is ours as well."""
    descriptor = file.fileno()
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode()


@contextmanager
def running(
    environment: Environment, hub: str | Path, store: str, *options: str
) -> Iterator[RunningJob]:
    """A job that takes `hub` into `store`; it and its halted workers are killed at the end.

    Options are those of `chaos_job`.
    """
    command = [sys.executable, chaos_job.__file__, str(hub), store, *options, "--shards-told-in"]
    with (
        tempfile.TemporaryDirectory() as shards,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
        subprocess.Popen(
            [*command, shards], env=with_path(environment), stdout=out, stderr=err
        ) as process,
    ):
        job = RunningJob(process, store, out, err, Path(shards))
        try:
            yield job
        finally:
            process.kill()
            for worker in job.halted_workers():
                with suppress(ProcessLookupError):  # Ray ends those of a dead job
                    os.kill(worker, signal.SIGKILL)


def run(environment: Environment, hub: str | Path, store: str, *options: str) -> dict[str, Any]:
    """Run a job to its good end."""
    with running(environment, hub, store, *options) as job:
        return job.report()


@contextmanager
def reader(store: str, seed_hub: Path, environment: Environment) -> Iterator[dict[str, Any]]:
    """Someone who reads the seed for the length of the block, and must never fail.

    Gives a dict that is filled at the end: ``rounds`` and ``longest_s``.
    """
    told: dict[str, Any] = {}
    command = [sys.executable, chaos_reader.__file__, store, SEED_REPO, str(seed_hub / SEED_REPO)]
    with subprocess.Popen(
        command,
        env=with_path(environment),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield told
            out, err = process.communicate(timeout=TIMEOUT_S)
        finally:
            process.kill()
    assert process.returncode == 0, f"expected every read to succeed, found:\n{err}"
    told.update(json.loads(out))


def with_path(environment: Environment) -> Environment:
    """So that programs find the package of the tests."""
    path = environment.get("PYTHONPATH", "")
    return {**environment, "PYTHONPATH": f"{_TESTS}:{path}".removesuffix(":")}


def seed(seed_hub: Path, store: str) -> str:
    """Make a store that holds the seed."""
    ingest_inline(seed_hub, store)
    return store


def finished(store: str, stage: str) -> int:
    """Shards of a stage that an unfinished job has finished."""
    staged = open_objects(store).list(keys.STAGING)
    return sum(info.key.endswith("/done.json") and f"/{stage}/" in info.key for info in staged)


def packs(store: str) -> list[str]:
    """Names of all packs."""
    return [info.key for info in open_objects(store).list(keys.PACKS)]


def content(store: str) -> dict[str, Any]:
    """Everything in a store but times and run ids."""
    tables = {}
    catalog = open_store(store).catalog()
    for name, schema in TABLES.items():
        rows = catalog.dataset(name).to_table(columns=schema.names).to_pylist()
        tables[name] = sorted(json.dumps(row, sort_keys=True) for row in rows)
    return {"runs": len(catalog.runs), "packs": packs(store), "tables": tables}


def check_store(store: str, expected: dict[str, Any]) -> None:
    """Sound, with this content, and nothing of the job left over."""
    assert not (problems := verify(open_store(store), read_data=True).problems), problems
    found = content(store)
    for name, rows in expected["tables"].items():
        assert found["tables"][name] == rows, name
    assert found == expected
    assert finished(store, "") == 0
