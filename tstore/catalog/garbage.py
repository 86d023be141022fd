"""What of a store nothing needs any more, and since when.

Needed is what the files of any kept state need, their bases, and what the unfinished work of a job
needs. A pack of which nothing is needed is marked with the time at which that was first seen. After a
grace period it is given up: a run says so for good, and only then is it deleted. Until then all is
decided anew each time, from the catalog: a mark alone removes nothing.

A name that was given up is never used again (`EncodeSetup.generation`), so that a gc that stalled
before it deleted a pack can do so whenever it wakes up.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import duckdb
import pyarrow as pa

from tstore.catalog import keys
from tstore.catalog.catalog import NEED, Catalog
from tstore.catalog.parquet import read_parts
from tstore.catalog.runs import run_time
from tstore.catalog.schema import BLOBS
from tstore.errors import ObjectNotFoundError
from tstore.objects import ObjectStore


@dataclass(frozen=True)
class Garbage:
    """What a store holds in vain.

    Attributes
    ----------
    packs : dict of str to int
        Size of each pack.
    live_nbytes : dict of str to int
        Blobs that are needed, of each pack that has any.
    header_nbytes : dict of str to int
        About what those take of the header of the pack.
    staged : set of str
        Packs of unfinished work.
    dropped : set of str
        Packs that were given up.
    marked : dict of str to datetime
        Packs that nothing needs, and when that was first seen.
    due : dict of str to int
        Size of the packs that were marked a grace period ago.
    stale_parts : dict of str to int
        Size of parts of the catalog whose rows were merged into others a grace period ago.
    """

    packs: dict[str, int]
    live_nbytes: dict[str, int]
    header_nbytes: dict[str, int]
    staged: frozenset[str]
    dropped: frozenset[str]
    marked: dict[str, datetime]
    due: dict[str, int]
    stale_parts: dict[str, int]

    @property
    def left_over(self) -> dict[str, int]:
        """Size of packs that were given up and are there still: gc was interrupted."""
        return {pack: self.packs[pack] for pack in sorted(self.dropped & self.packs.keys())}

    def sparse(self, below: float) -> list[str]:
        """Packs of which less than this share is needed, but something is."""
        return sorted(
            pack
            for pack, live in self.live_nbytes.items()
            if pack in self.packs
            and live > 0
            and live + self.header_nbytes[pack] < below * self.packs[pack]
        )


_LIVE = """
CREATE OR REPLACE TEMP TABLE live_blobs AS
WITH needed AS (
    SELECT x.tensor_id FROM (SELECT unnest(layout) AS x FROM kept_files)
    UNION SELECT tensor_id FROM staged_blobs
    UNION SELECT base_id FROM staged_blobs WHERE base_id IS NOT NULL
),
own AS (SELECT base_id FROM current_blobs SEMI JOIN needed USING (tensor_id))
SELECT * FROM current_blobs WHERE tensor_id IN (FROM needed) OR tensor_id IN (FROM own)
"""


_SIZES = """
SELECT pack, sum(nbytes), sum(150 + 2 * length(tensor_id) + coalesce(length(base_id), 0))
FROM live_blobs GROUP BY 1
"""

_RELEASED = """
WITH removals_of AS (
    SELECT x.tensor_id, max(r.run) AS run
    FROM files f JOIN removed r USING (repo, revision), unnest(f.layout) AS t(x)
    WHERE f.run < r.run GROUP BY 1
),
released AS (
    SELECT b.pack, r.run FROM current_blobs b JOIN removals_of r USING (tensor_id)
    UNION ALL
    SELECT base.pack, r.run FROM current_blobs b JOIN removals_of r USING (tensor_id)
    JOIN current_blobs base ON base.tensor_id = b.base_id
    UNION ALL
    SELECT pack, lead(run) OVER (PARTITION BY tensor_id ORDER BY run) FROM blobs
)
SELECT pack, max(run) FROM released WHERE run IS NOT NULL GROUP BY pack
"""
"""The last run that may have made a pack garbage: it removed what needs it, or stored that anew. A mark
may be older, of an earlier time at which nothing needed the pack."""
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


def find_garbage(
    connection: duckdb.DuckDBPyConnection, catalog: Catalog, now: datetime, grace: timedelta
) -> Garbage:
    """Look at everything that a store has; makes the temporary table ``live_blobs``.

    Parameters
    ----------
    connection : DuckDBPyConnection
        `Catalog.connect`.
    catalog : Catalog
        The same.
    now : datetime
    grace : timedelta

    Raises
    ------
    CatalogDamagedError
        Not all that is needed can be seen.
    """
    objects = catalog.objects
    catalog.check(NEED)  # a damaged footer would hide rows without an error
    connection.register("staged_blobs", _staged_blobs(objects))
    connection.execute(_LIVE)
    live = connection.sql(_SIZES).fetchall()
    staged = _column(connection, "SELECT DISTINCT pack FROM staged_blobs")
    dropped = _column(connection, "SELECT pack FROM dropped_packs")
    packs = dict(_packs(objects))
    marks, released = read_marks(objects), _released(connection)
    held = {pack: int(nbytes) for pack, nbytes, _ in live}
    marked = {
        pack: max(marks.get(pack, now), released.get(pack, _LONG_AGO))
        for pack in packs
        if pack not in held and pack not in staged and pack not in dropped
    }
    return Garbage(
        packs=packs,
        live_nbytes=held,
        header_nbytes={pack: int(header) for pack, _, header in live},
        staged=staged,
        dropped=dropped,
        marked=marked,
        due={pack: packs[pack] for pack, since in marked.items() if since <= now - grace},
        stale_parts=dict(_stale_parts(catalog, now - grace)),
    )


def read_marks(objects: ObjectStore) -> dict[str, datetime]:
    """Packs that an earlier gc saw nothing need; none when the object is gone or garbled."""
    try:
        raw = json.loads(objects.get(keys.MARKED_PACKS))
        return {pack: datetime.fromisoformat(since) for pack, since in raw.items()}
    except (ObjectNotFoundError, ValueError, AttributeError, TypeError):
        return {}


def write_marks(objects: ObjectStore, marked: dict[str, datetime]) -> None:
    """Remember since when nothing needs these packs."""
    text = json.dumps({pack: since.isoformat() for pack, since in sorted(marked.items())}, indent=1)
    objects.put(keys.MARKED_PACKS, [text.encode()])


def utc_now() -> datetime:
    """Now, as marks are compared with."""
    return datetime.now(UTC)


def _packs(objects: ObjectStore) -> Iterator[tuple[str, int]]:
    for info in objects.list(keys.PACKS):
        name = info.key.rpartition("/")[2].removesuffix(".safetensors")
        if info.key == keys.pack(name):  # what else lies there is not ours
            yield name, info.nbytes


def _staged_blobs(objects: ObjectStore) -> pa.dataset.Dataset:
    """Rows that tasks of unfinished jobs left."""
    names = [i.key for i in objects.list(keys.STAGING) if i.key.endswith("/blobs.parquet")]
    return read_parts(objects, names, BLOBS)


def _released(connection: duckdb.DuckDBPyConnection) -> dict[str, datetime]:
    return {pack: run_time(run) for pack, run in connection.sql(_RELEASED).fetchall()}


def _stale_parts(catalog: Catalog, before: datetime) -> Iterator[tuple[str, int]]:
    """Parts that were merged before then and are there still."""
    merged = {key for run in catalog.runs if run_time(run.run_id) <= before for key in run.merged}
    for table in sorted({key.split("/")[1] for key in merged}):
        for info in catalog.objects.list(keys.table(table)):
            if info.key in merged:
                yield info.key, info.nbytes


def _column(connection: duckdb.DuckDBPyConnection, query: str) -> frozenset[str]:
    return frozenset(name for (name,) in connection.sql(query).fetchall())
