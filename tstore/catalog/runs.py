"""Commit markers: one JSON object per run, the only thing that makes its rows visible."""

from __future__ import annotations

import json
import secrets
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import tstore
from tstore.catalog import keys
from tstore.catalog.schema import SCHEMA_VERSION
from tstore.errors import (
    CatalogDamagedError,
    ObjectExistsError,
    ObjectNotFoundError,
    StoreFormatError,
)
from tstore.ids import sha256
from tstore.objects import ObjectStore

_READ_AT_ONCE = 16
"""Markers: small objects, so that what counts is the time of each request."""
_TIME = "%Y%m%dT%H%M%S.%fZ"


@dataclass(frozen=True)
class Part:
    """One Parquet part that a run published."""

    key: str
    rows: int
    nbytes: int
    sha256: str

    def problem(self, objects: ObjectStore) -> str | None:
        """What is wrong with the object, in one line; None if it is what was written."""
        try:
            data = objects.get(self.key)
        except ObjectNotFoundError:
            return f"{self.key}: expected {self.nbytes} bytes, found no object"
        if len(data) != self.nbytes:
            return f"{self.key}: expected {self.nbytes} bytes, found {len(data)} bytes"
        if (found := sha256(data)) != self.sha256:
            return f"{self.key}: expected SHA-256 {self.sha256}, found {found}"
        return None


@dataclass(frozen=True)
class RunMarker:
    """What a committed run says of itself.

    Attributes
    ----------
    run_id : str
        Sorts by time; the value of the column ``run`` of its rows.
    kind : str
        ``ingest``, ``replan``, ``gc``, ``rm`` or ``undelete``.
    tool_version : str
        Version of tstore that wrote it.
    options : dict
        What the job was asked to do.
    counts : dict
        Totals of the run, as the job prints them with ``--json``.
    tables : dict of str to list of Part
        Every part that belongs to the run.
    merged : list of str
        Keys of parts of earlier runs whose rows lie in parts of this one; see
        `tstore.catalog.merge`.
    workspace : str
        Token of the workspace that the run came from; it may be cleared.
    """

    run_id: str
    kind: str
    tool_version: str
    options: dict[str, Any]
    counts: dict[str, Any]
    tables: dict[str, list[Part]]
    workspace: str = ""
    merged: list[str] = field(default_factory=list)
    schema_version: int = SCHEMA_VERSION
    committed_at: str = field(default_factory=lambda: datetime.now(UTC).isoformat())

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self), indent=1, sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, data: bytes, key: str) -> RunMarker:
        """Parse a marker.

        Raises
        ------
        StoreFormatError
            Another version of tstore wrote it.
        CatalogDamagedError
            It is no marker.
        """
        try:
            raw = json.loads(data)
            if raw["schema_version"] != SCHEMA_VERSION:
                raise StoreFormatError(
                    f"expected catalog schema {SCHEMA_VERSION}, found {raw['schema_version']} "
                    f"in {key}; use the tstore version that wrote it ({raw['tool_version']})",
                    key=key,
                )
            tables = {name: [Part(**p) for p in parts] for name, parts in raw["tables"].items()}
            return cls(**{**raw, "tables": tables})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CatalogDamagedError(
                f"expected the commit marker of a run in {key}, found {data[:80]!r}; "
                "restore it from a backup",
                key=key,
            ) from error


BARRED = "barred"
"""Kind of a marker that stands where a run can no longer be committed; no reader sees it."""


def bar_run(objects: ObjectStore, run_id: str, purpose: str) -> None:
    """Take the place of a run's marker, unless the run is committed.

    Parameters
    ----------
    objects : ObjectStore
    run_id : str
        What the last holder of the lease was about to commit.
    purpose : str
        Of the job that took the lease over.
    """
    marker = RunMarker(run_id, BARRED, tstore.__version__, {"by": purpose}, {}, {})
    with suppress(ObjectExistsError):
        objects.put_new(keys.run_marker(run_id), [marker.to_bytes()])


def new_run_id(last: str | None) -> str:
    """A run id after `last`, also when the clock went backwards; no two jobs get the same."""
    now = datetime.now(UTC)
    if last is not None:
        now = max(now, run_time(last) + timedelta(microseconds=1))
    return f"{now.strftime(_TIME)}-{secrets.token_hex(2)}"


def run_time(run_id: str) -> datetime:
    """When the id was given out."""
    return datetime.strptime(run_id.partition("-")[0], _TIME).replace(tzinfo=UTC)


def read_markers(objects: ObjectStore) -> tuple[RunMarker, ...]:
    """Markers of all committed runs, oldest first."""
    names = [info.key for info in objects.list(keys.RUNS) if info.key.endswith(".json")]
    with ThreadPoolExecutor(_READ_AT_ONCE) as pool:
        markers = [*map(RunMarker.from_bytes, pool.map(objects.get, names), names)]
    return tuple(marker for marker in markers if marker.kind != BARRED)
