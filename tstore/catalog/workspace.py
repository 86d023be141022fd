"""The results of an unfinished run, so that a restarted job redoes only what is missing.

A task writes its rows, then a ``done`` marker. Shards are keyed by a hash of their whole input:
if a file changed since, its shard has another key and is done again.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from tstore.catalog import keys
from tstore.catalog.parquet import read_parts, to_bytes
from tstore.catalog.runs import read_markers, run_time
from tstore.catalog.schema import STAGED_TABLES, TABLES
from tstore.errors import ObjectNotFoundError
from tstore.objects import ObjectStore, open_objects


def shard_key(content: Any) -> str:
    """Key of a shard: a hash of everything that decides its result, given as JSON values."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@dataclass(frozen=True)
class Workspace:
    """Staging area of one run.

    Attributes
    ----------
    uri : str
        Object store that holds it: the store itself, or a directory of the driver for a dry run.
    key : str
        Hash of what the job was asked to do; the same command finds the same workspace.
    token : str
        Made when the workspace was; the marker of the run that comes of it carries it.
    shared : bool
        Whether other machines than the driver's reach it.
    """

    uri: str
    key: str
    token: str
    shared: bool = True

    @property
    def objects(self) -> ObjectStore:
        return open_objects(self.uri)

    def write_shard(
        self, stage: str, key: str, tables: dict[str, pa.Table], stats: dict[str, Any]
    ) -> None:
        """Leave the rows of a shard; safe to do twice.

        A shard with failures does not count as finished: what failed may work the next time.
        """
        objects = self.objects
        for name, table in tables.items():
            objects.put(keys.staged(self.key, stage, key, name), [to_bytes(table)])
        if not _has_failures(tables):
            objects.put(keys.shard_done(self.key, stage, key), [json.dumps(stats).encode()])

    def forget(self, stage: str, key: str) -> None:
        """Make a finished shard an unfinished one."""
        self.objects.delete(keys.shard_done(self.key, stage, key))

    def finished(self, stage: str) -> dict[str, dict[str, Any]]:
        """Shard keys that are done, with their statistics."""
        objects, prefix = self.objects, f"{keys.staging(self.key)}{stage}/"
        done = {}
        for info in objects.list(prefix):
            key, _, name = info.key.removeprefix(prefix).partition("/")
            if name == keys.DONE_NAME:
                done[key] = json.loads(objects.get(info.key))
        return done

    def rows(self, stage: str, name: str, shard_keys: Iterable[str]) -> ds.Dataset:
        """Rows of these finished shards, in their order."""
        parts = [keys.staged(self.key, stage, key, name) for key in shard_keys]
        return read_parts(self.objects, parts, STAGED_TABLES[name])

    def clear(self) -> None:
        """Remove everything, the intent last, so that an interrupted removal is found again.

        A shard is made unfinished before its rows go, for the job that may find them instead.
        """
        objects = self.objects
        names = [info.key for info in objects.list(keys.staging(self.key))]
        for name in sorted(names, key=lambda name: not name.endswith(keys.DONE_NAME)):
            if name != keys.intent(self.key):
                objects.delete(name)
        objects.delete(keys.intent(self.key))


def _has_failures(tables: dict[str, pa.Table]) -> bool:
    unreadable = "sources" in tables and not pc.all(tables["sources"]["readable"]).as_py()
    return unreadable or ("failures" in tables and tables["failures"].num_rows > 0)


def open_workspace(objects: ObjectStore, intent: dict[str, Any]) -> tuple[Workspace, bool]:
    """The workspace of an interrupted job with the same intent, else a new one.

    Call it with the writer lease held: whatever is unfinished then belongs to a dead job.

    Returns
    -------
    workspace : Workspace
    resumed : bool
        Whether it may hold results of an interrupted job.
    """
    key = shard_key(intent)
    try:
        token = json.loads(objects.get(keys.intent(key)))["token"]
    except ObjectNotFoundError:
        token = uuid.uuid4().hex
        now = datetime.now(UTC).isoformat()
        content = {"token": token, "created_at": now, "intent": intent}
        objects.put(keys.intent(key), [json.dumps(content, sort_keys=True).encode()])
        return Workspace(objects.uri, key, token), False
    return Workspace(objects.uri, key, token), True


def clear_committed(objects: ObjectStore) -> None:
    """Remove the workspaces of jobs that died between their commit and their clean-up.

    Call it with the writer lease held.
    """
    committed = {marker.workspace for marker in read_markers(objects)}
    for info in list(objects.list(keys.STAGING)):
        key, _, name = info.key.removeprefix(keys.STAGING).partition("/")
        if name == keys.INTENT_NAME:
            token = json.loads(objects.get(info.key))["token"]
            if token in committed:
                Workspace(objects.uri, key, token).clear()


def clear_older(objects: ObjectStore, before: datetime) -> None:
    """Remove the workspaces of jobs that were begun before then and never finished.

    Call it with the writer lease held. The same command then starts from scratch.
    """
    for info in list(objects.list(keys.STAGING)):
        key, _, name = info.key.removeprefix(keys.STAGING).partition("/")
        if name == keys.INTENT_NAME:
            content = json.loads(objects.get(info.key))
            if datetime.fromisoformat(content["created_at"]) <= before:
                Workspace(objects.uri, key, content["token"]).clear()


def remove_uncommitted(objects: ObjectStore, older_than_s: float) -> None:
    """Remove table parts of runs that never were committed.

    Younger ones stay: a job that lost its lease may still be about to find that out. Every try to
    commit has a run id of its own, so nothing else ever writes there.
    """
    committed = {marker.run_id for marker in read_markers(objects)}
    before = datetime.now(UTC) - timedelta(seconds=older_than_s)
    for table in TABLES:
        for info in list(objects.list(keys.table(table))):
            run_id = info.key.removeprefix(keys.table(table)).split("/", 1)[0]
            if run_id not in committed and run_time(run_id) < before:
                objects.delete(info.key)
