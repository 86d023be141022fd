"""Every object key of the store layout, in one place (docs/design.md, "Store layout")."""

from __future__ import annotations

STORE = "store.json"
WRITER_LEASE = "leases/writer.json"
MARKED_PACKS = "gc/marked.json"
RUNS = "catalog/runs/"
PACKS = "packs/"
STAGING = "staging/"
INTENT_NAME = "intent.json"
DONE_NAME = "done.json"


def run_marker(run_id: str) -> str:
    """Commit marker; a run exists for readers once this does."""
    return f"{RUNS}{run_id}.json"


def table(name: str) -> str:
    """Folder of a catalog table."""
    return f"catalog/{name}/"


def table_run(name: str, run_id: str) -> str:
    """Folder of what one run added to a table."""
    return f"{table(name)}{run_id}/"


def part(name: str, run_id: str, number: int) -> str:
    """One immutable Parquet part of a table."""
    return f"{table_run(name, run_id)}part-{number:05d}.parquet"


def pack(pack_id: str) -> str:
    """A pack of blobs, named by the SHA-256 of its bytes."""
    return f"{PACKS}{pack_id[:2]}/{pack_id}.safetensors"


def tensorpred(dtype: str, codec: str) -> str:
    """Coefficients and fit report of one predictor."""
    return f"models/tensorpred/{dtype}-{codec}.json"


def staging(workspace: str) -> str:
    """Folder of the results that an unfinished run has so far."""
    return f"{STAGING}{workspace}/"


def intent(workspace: str) -> str:
    """What an unfinished run set out to do, and the run id that it will get."""
    return f"{staging(workspace)}{INTENT_NAME}"


def staged(workspace: str, stage: str, shard_key: str, name: str) -> str:
    """Rows that one finished shard of a stage left."""
    return f"{staging(workspace)}{stage}/{shard_key}/{name}.parquet"


def shard_done(workspace: str, stage: str, shard_key: str) -> str:
    """Written after all rows of a shard; holds its statistics."""
    return f"{staging(workspace)}{stage}/{shard_key}/{DONE_NAME}"
