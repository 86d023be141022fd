"""Encode step of a job: rounds of encode shards until every tensor that can be read is stored.

A source may change after it was scanned. What was to be read from it is then read from another
file that holds the same tensor, and deltas of a base that is lost are stored alone: the bad file
costs only itself.

What is to be encoded comes out of DuckDB a batch at a time, so that the driver holds the shards
that are in flight, not the hub.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tstore.catalog import keys
from tstore.catalog.blobs import BLOB_COLUMNS, BlobLocation
from tstore.catalog.schema import BLOBS, FAILURES
from tstore.catalog.stored import StoredTensor
from tstore.cluster.fanout import Stage
from tstore.cluster.job import Job
from tstore.encode.shards import EncodeItem, EncodeSetup, plan_shards
from tstore.encode.stage import encode_shard, rows_of_lost
from tstore.errors import ObjectNotFoundError
from tstore.hub.location import HubLocation, HubTensor
from tstore.hub.reader import SourceFile
from tstore.plan.dedup import BAD_SOURCES

_BATCH_ROWS = 16 * 1024

_ITEMS = f"""
WITH item AS (
    SELECT p.tensor_id, p.dtype, p.nbytes, u.sha256, u.locations, u.arrival,
           CASE WHEN $retry AND p.role <> 'opaque' THEN $alone ELSE p.codec END AS codec,
           CASE WHEN NOT $retry THEN p.base_id END AS base_id,
           CAST(coalesce(p.standalone_ratio, 1) * p.nbytes AS BIGINT) AS alone_nbytes
    FROM planned p JOIN new_unique u USING (tensor_id)
    WHERE p.tensor_id NOT IN (SELECT tensor_id FROM encoded)
)
SELECT item.*, hub.sha256 AS base_sha256, hub.nbytes AS base_nbytes,
       hub.locations AS base_locations, stored AS base_stored
FROM item
LEFT JOIN new_unique hub ON hub.tensor_id = item.base_id
LEFT JOIN (SELECT {BLOB_COLUMNS} FROM usable_blobs) stored ON stored.tensor_id = item.base_id
ORDER BY min(item.arrival) OVER (PARTITION BY coalesce(item.base_id, item.tensor_id)),
         item.base_id IS NOT NULL, item.arrival
"""
"""Cluster by cluster, a base before its deltas. What is tried again is stored alone: its base may be
what was lost."""

_KEEP = f"""
INSERT INTO encoded
SELECT {", ".join(f'"{name}"' for name in BLOBS.names)} FROM encoded_now b
WHERE base_id IS NULL OR base_id IN (SELECT tensor_id FROM encoded)
   OR base_id IN (SELECT tensor_id FROM encoded_now WHERE base_id IS NULL)
   OR base_id IN (SELECT tensor_id FROM usable_blobs)
"""
"""Deltas whose base did not get a blob could never be decoded."""


class HubIndex:
    """Where the bytes of the new unique extents lie.

    Parameters
    ----------
    job : Job
        Its connection has the table ``new_unique``.
    sources : iterable of SourceFile
        Every source of the run.

    Attributes
    ----------
    bad : set of str
        Sources that must not be read any more.
    """

    def __init__(self, job: Job, sources: Iterable[SourceFile]) -> None:
        self._connection = job.connection
        self._sources = {source.source: source for source in sources}
        self.bad: set[str] = set()

    def tensor(
        self, tensor_id: str, sha256: str, nbytes: int, locations: Iterable[Mapping[str, Any]]
    ) -> HubTensor | None:
        """The first place of a tensor that is still good; None when there is none."""
        for place in locations:
            if place["source"] not in self.bad:
                return HubTensor(tensor_id, sha256, self._at(place, nbytes))
        return None

    def locate(self, tensor_ids: Iterable[str]) -> dict[str, HubLocation]:
        """Where the scan found each of these tensors first."""
        query = (
            "SELECT tensor_id, locations[1], nbytes FROM new_unique"
            " WHERE tensor_id IN (SELECT unnest($names))"
        )
        rows = self._connection.execute(query, {"names": list(tensor_ids)}).fetchall()
        return {name: self._at(place, nbytes) for name, place, nbytes in rows}

    def _at(self, place: Mapping[str, Any], nbytes: int) -> HubLocation:
        return HubLocation(self._sources[place["source"]], place["start"], nbytes)


def encode_all(job: Job, index: HubIndex) -> list[pa.Table]:
    """Encode every planned tensor that can still be read.

    The job's connection has the tables ``planned`` and ``new_unique``; it gets ``encoded``, rows of
    the table ``blobs``.

    Returns
    -------
    list of pyarrow.Table
        `BAD_SOURCES` that changed or vanished since the scan.
    """
    job.connection.register("no_blobs", BLOBS.empty_table())
    job.connection.execute("CREATE OR REPLACE TEMP TABLE encoded AS FROM no_blobs")
    bad_sources: list[pa.Table] = []
    round_ = 0
    while (nbytes := _pending_nbytes(job, index)) is not None:
        round_ += 1
        stage = "encode" if round_ == 1 else f"encode-{round_}"
        bad_sources.append(_round(job, index, stage, nbytes, retry=round_ > 1))
    return bad_sources


def encode_setup(job: Job) -> EncodeSetup:
    """What the encode shards of a job have in common."""
    ((generation,),) = job.connection.sql("SELECT max(run) FROM dropped_packs").fetchall()
    options = job.options
    return EncodeSetup(
        store_uri=job.store.objects.uri,
        standalone_codec=options.plan.standalone_codec,
        base_cache_nbytes=options.tasks.base_cache_nbytes,
        generation=generation or "",
    )


def _round(job: Job, index: HubIndex, stage: str, nbytes: int, *, retry: bool) -> pa.Table:
    forget_lost_packs(job, stage)
    setup = encode_setup(job)
    shards = plan_shards(_items(job, index, retry=retry), setup, job.options.tasks)
    work = Stage(stage, encode_shard, rows_of_lost)
    shard_keys = job.fan_out(work, shards, nbytes, setup)
    job.connection.register("encoded_now", job.workspace.rows(stage, "blobs", shard_keys))
    job.connection.execute(_KEEP)
    failures = job.workspace.rows(stage, "failures", shard_keys).to_table(columns=FAILURES.names)
    index.bad.update(failures["source"].to_pylist())
    return failures.select(BAD_SOURCES.names).cast(BAD_SOURCES)


def _pending_nbytes(job: Job, index: HubIndex) -> int | None:
    """Raw bytes of what is planned, not encoded, and still to be read; None if there is nothing."""
    bad = pa.table({"source": pa.array(sorted(index.bad), pa.string())})
    job.connection.register("bad_now", bad)
    ((count, nbytes),) = job.connection.sql(
        "SELECT count(*), coalesce(sum(p.nbytes), 0) FROM planned p JOIN new_unique u USING (tensor_id)"
        " WHERE tensor_id NOT IN (SELECT tensor_id FROM encoded) AND EXISTS ("
        "   SELECT 1 FROM unnest(u.locations) AS t(place)"
        "   WHERE place.source NOT IN (SELECT source FROM bad_now))"
    ).fetchall()
    return nbytes if count else None


def _items(job: Job, index: HubIndex, *, retry: bool) -> Iterator[EncodeItem]:
    """Read from the connection, which is good for nothing else meanwhile."""
    parameters = {"retry": retry, "alone": job.options.plan.standalone_codec}
    for batch in job.connection.sql(_ITEMS, params=parameters).to_arrow_reader(_BATCH_ROWS):
        for row in batch.to_pylist():
            if (item := _item(row, index, job.store.objects.uri)) is not None:
                yield item


def _item(row: dict[str, Any], index: HubIndex, store_uri: str) -> EncodeItem | None:
    target = index.tensor(row["tensor_id"], row["sha256"], row["nbytes"], row["locations"])
    if target is None:
        return None
    base: HubTensor | StoredTensor | None = None
    if row["base_stored"]["tensor_id"] is not None:
        base = StoredTensor(store_uri, BlobLocation(**row["base_stored"]))
    elif row["base_id"] is not None:
        base = index.tensor(
            row["base_id"], row["base_sha256"], row["base_nbytes"], row["base_locations"]
        )
    return EncodeItem(target, row["dtype"], row["codec"], base, row["alone_nbytes"])


def forget_lost_packs(job: Job, stage: str) -> None:
    """Shards that an interrupted job finished count only while their packs are there for good."""
    objects = job.store.objects
    dropped = {pack for (pack,) in job.connection.sql("SELECT pack FROM dropped_packs").fetchall()}
    for key in job.workspace.finished(stage):
        rows = job.workspace.rows(stage, "blobs", [key]).to_table(["pack", "offset", "nbytes"])
        ends = pc.add(rows["offset"], rows["nbytes"])
        for pack, end in zip(rows["pack"].to_pylist(), ends.to_pylist(), strict=True):
            try:
                if pack not in dropped and objects.head(keys.pack(pack)).nbytes >= end:
                    continue
            except ObjectNotFoundError:
                pass
            job.workspace.forget(stage, key)
            break
