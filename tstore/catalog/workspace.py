"""The results of an unfinished run, so that a restarted job redoes only what is missing.

A task writes its rows, then a ``done`` marker. Shards are keyed by a hash of their whole input:
if a file changed since, its shard has another key and is done again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from tstore.catalog import keys
from tstore.catalog.parquet import read_parts, to_bytes
from tstore.catalog.runs import new_run_id, read_markers
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
        Object store that holds it: the store itself, or a scratch directory for a dry run.
    key : str
        Hash of what the job was asked to do; the same command finds the same workspace.
    run_id : str
        The run that these results will become.
    """

    uri: str
    key: str
    run_id: str

    @property
    def objects(self) -> ObjectStore:
        return open_objects(self.uri)

    def write_shard(
        self, stage: str, key: str, tables: dict[str, pa.Table], stats: dict[str, Any]
    ) -> None:
        """Leave the rows of a finished shard; safe to do twice."""
        objects = self.objects
        for name, table in tables.items():
            objects.put(keys.staged(self.key, stage, key, name), [to_bytes(table)])
        objects.put(keys.shard_done(self.key, stage, key), [json.dumps(stats).encode()])

    def finished(self, stage: str) -> dict[str, dict[str, Any]]:
        """Shard keys that are done, with their statistics."""
        objects, prefix = self.objects, f"{keys.staging(self.key)}{stage}/"
        done = {}
        for info in objects.list(prefix):
            key, _, name = info.key.removeprefix(prefix).partition("/")
            if name == "done.json":
                done[key] = json.loads(objects.get(info.key))
        return done

    def rows(self, stage: str, name: str, shard_keys: Iterable[str]) -> ds.Dataset:
        """Rows of these finished shards, in their order."""
        parts = [keys.staged(self.key, stage, key, name) for key in shard_keys]
        return read_parts(self.objects, parts, STAGED_TABLES[name])

    def clear(self) -> None:
        """Remove everything, the intent last, so that an interrupted removal is found again."""
        objects = self.objects
        for info in list(objects.list(keys.staging(self.key))):
            if info.key != keys.intent(self.key):
                objects.delete(info.key)
        objects.delete(keys.intent(self.key))


def open_workspace(objects: ObjectStore, intent: dict[str, Any]) -> tuple[Workspace, bool]:
    """The workspace of an interrupted job with the same intent, else a new one.

    Call it with the writer lease held: whatever is unfinished then belongs to a dead job.

    Returns
    -------
    workspace : Workspace
    resumed : bool
        Whether it may hold results of an interrupted job.
    """
    committed = {marker.run_id for marker in read_markers(objects)}
    last = max(committed, default=None)
    key = shard_key(intent)
    try:
        run_id = json.loads(objects.get(keys.intent(key)))["run_id"]
    except ObjectNotFoundError:
        run_id = None
    resumed = run_id is not None
    if run_id is None or (last is not None and run_id <= last):
        if run_id is not None and run_id not in committed:
            _remove_tables(objects, run_id)  # runs committed since must stay older than this one
        run_id = new_run_id(last)
        content = {"run_id": run_id, "intent": intent}
        objects.put(keys.intent(key), [json.dumps(content, sort_keys=True).encode()])
    return Workspace(objects.uri, key, run_id), resumed


def clear_committed(objects: ObjectStore) -> None:
    """Remove the workspaces of jobs that died between their commit and their clean-up.

    Call it with the writer lease held.
    """
    committed = {marker.run_id for marker in read_markers(objects)}
    for info in list(objects.list(keys.STAGING)):
        key, _, name = info.key.removeprefix(keys.STAGING).partition("/")
        if name == keys.INTENT_NAME:
            run_id = json.loads(objects.get(info.key))["run_id"]
            if run_id in committed:
                Workspace(objects.uri, key, run_id).clear()


def _remove_tables(objects: ObjectStore, run_id: str) -> None:
    """Remove the table parts of a run that never was committed."""
    for table in TABLES:
        for info in list(objects.list(keys.table_run(table, run_id))):
            objects.delete(info.key)
