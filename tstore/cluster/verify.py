"""The verify job: ``tstore verify --read-data`` as tasks. It writes nothing that lasts."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TypeVar

import duckdb
import pyarrow as pa
from rich.console import Console

from tstore.catalog import Store, keys
from tstore.catalog.blobs import BlobLocation
from tstore.catalog.schema import PROBLEMS, TABLES
from tstore.catalog.store import open_store
from tstore.catalog.workspace import shard_key
from tstore.cluster.fanout import Stage
from tstore.cluster.job import Job, JobOptions
from tstore.cluster.opening import job_workspace
from tstore.cluster.session import ray_session
from tstore.errors import TStoreError
from tstore.objects import open_objects
from tstore.plan.placed import batched
from tstore.restore.lookup import StoredFile, blobs_for
from tstore.restore.verify import (
    VerifyReport,
    damaged_pack,
    damaged_parts,
    sound_files,
    unreadable_files,
    verify,
)
from tstore.settings import MIB, TaskSettings

SHARD_NBYTES = 256 * MIB
"""Raw bytes of files, or bytes of packs, that a task looks at."""

Item = TypeVar("Item")


@dataclass(frozen=True)
class FilesShard:
    """Files to decode, and where their blobs lie."""

    files: tuple[StoredFile, ...]
    blobs: dict[str, BlobLocation]
    memory_nbytes: int

    @property
    def key(self) -> str:
        """Hash of the files and blobs."""
        return shard_key([[f.repo, f.revision, f.path] for f in self.files])

    @property
    def nbytes(self) -> int:
        """Raw bytes."""
        return sum(file.nbytes for file in self.files)

    def halves(self) -> tuple[FilesShard, ...]:
        """The same files as two shards; nothing if it is one."""
        return tuple(replace(self, files=files) for files in _halves(self.files))


@dataclass(frozen=True)
class PacksShard:
    """Packs whose SHA-256 is to be that of their name."""

    packs: tuple[tuple[str, int], ...]
    memory_nbytes: int

    @property
    def key(self) -> str:
        """Hash of the names."""
        return shard_key([pack for pack, _ in self.packs])

    @property
    def nbytes(self) -> int:
        """Bytes of the packs."""
        return sum(nbytes for _, nbytes in self.packs)

    def halves(self) -> tuple[PacksShard, ...]:
        """The same packs as two shards; nothing if it is one."""
        return tuple(replace(self, packs=packs) for packs in _halves(self.packs))


def verify_on_cluster(uri: str, console: Console) -> VerifyReport:
    """Check everything that a store holds: each pack, and each file decoded and compared.

    Parameters
    ----------
    uri : str
        The store.
    console : Console
        For progress.
    """
    store = open_store(uri)
    catalog = store.catalog()
    if damaged := list(damaged_parts(catalog, TABLES)):  # the tables cannot be relied on
        return VerifyReport(runs=len(catalog.runs), problems=damaged)
    report = verify(store)
    options = JobOptions(store=uri)
    intent = options.intent("verify", token=uuid.uuid4().hex)
    with (
        catalog.connect() as connection,
        job_workspace(store, intent, console) as workspace,
        ray_session(),
    ):
        job = Job(options, store, connection, workspace, console)
        try:
            report.problems += _damaged_packs(job)
            report.problems += _unreadable_files(job)
        finally:
            workspace.clear()
    return report


def _damaged_packs(job: Job) -> list[str]:
    packs = _present_packs(job.store, job.connection)
    memory = job.options.tasks.base_memory_nbytes
    shards = [
        PacksShard(tuple(some), memory)
        for some in batched(packs, lambda pack: pack[1], SHARD_NBYTES)
    ]
    return _problems(job, Stage("packs", check_packs), shards)


def _unreadable_files(job: Job) -> list[str]:
    shards, problems = list[FilesShard](), list[str]()
    for shard in _file_shards(job.connection, job.options.tasks):
        if isinstance(shard, str):
            problems.append(shard)
        else:
            shards.append(shard)
    return problems + _problems(job, Stage("files", check_files), shards)


def _problems(job: Job, stage: Stage, shards: list[FilesShard] | list[PacksShard]) -> list[str]:
    nbytes = sum(shard.nbytes for shard in shards)
    done = job.fan_out(stage, shards, nbytes, job.store.objects.uri)
    rows = job.workspace.rows(stage.name, "problems", done).to_table(columns=["problem"])
    return sorted(rows["problem"].to_pylist())


def check_packs(shard: PacksShard, uri: str) -> dict[str, pa.Table]:
    """Rows ``problems`` of the packs whose bytes are not those of their name."""
    objects = open_objects(uri)
    found = (damaged_pack(objects, pack, nbytes) for pack, nbytes in shard.packs)
    return _rows(problem for problem in found if problem is not None)


def check_files(shard: FilesShard, uri: str) -> dict[str, pa.Table]:
    """Rows ``problems`` of the files that do not decode to what was ingested."""
    return _rows(unreadable_files(open_objects(uri), shard.blobs, shard.files))


def _rows(problems: Iterable[str]) -> dict[str, pa.Table]:
    return {"problems": pa.Table.from_pylist([{"problem": p} for p in problems], PROBLEMS)}


def _present_packs(store: Store, connection: duckdb.DuckDBPyConnection) -> list[tuple[str, int]]:
    """Packs that current blobs lie in, with the size they have now; `verify` told of missing ones."""
    needed = connection.sql("SELECT DISTINCT pack FROM current_blobs ORDER BY pack").fetchall()
    sizes = {info.key: info.nbytes for info in store.objects.list(keys.PACKS)}
    return [(pack, sizes[name]) for (pack,) in needed if (name := keys.pack(pack)) in sizes]


def _file_shards(
    connection: duckdb.DuckDBPyConnection, tasks: TaskSettings
) -> Iterator[FilesShard | str]:
    """Shards of files of one revision each; a line for a revision whose blobs are not there."""
    revisions = groupby(sound_files(connection), lambda file: (file.repo, file.revision))
    for (repo, revision), files in revisions:
        for some in batched(files, lambda file: file.nbytes, SHARD_NBYTES):
            try:
                blobs = blobs_for(connection, some)
            except TStoreError as error:
                yield f"{repo}@{revision}: {error}"
                continue
            largest = max((blob.raw_nbytes for blob in blobs.values()), default=0)
            memory = tasks.base_memory_nbytes + tasks.base_cache_nbytes
            yield FilesShard(tuple(some), blobs, memory + tasks.memory_factor * largest)


def _halves(items: tuple[Item, ...]) -> tuple[tuple[Item, ...], ...]:
    middle = len(items) // 2
    return (items[:middle], items[middle:]) if middle else ()
