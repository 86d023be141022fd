"""Encode step of a job: rounds of encode shards until every tensor that can be read is stored.

A source may change after it was scanned. What was to be read from it is then read from another
file that holds the same tensor, and deltas of a base that is lost are stored alone: the bad file
costs only itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tstore.catalog import keys
from tstore.catalog.blobs import BlobLocation, find_usable
from tstore.catalog.schema import BLOBS, FAILURES
from tstore.cluster.job import Job
from tstore.encode.shards import EncodeItem, plan_shards
from tstore.encode.stage import encode_shard
from tstore.errors import ObjectNotFoundError
from tstore.hub.location import HubLocation, HubTensor
from tstore.hub.reader import SourceFile
from tstore.plan.dedup import BAD_SOURCES


class HubIndex:
    """Where the bytes of the new unique extents lie.

    Parameters
    ----------
    unique : pyarrow.Table
        `tstore.plan.dedup.Accepted.unique`.
    sources : iterable of SourceFile
        Every source of the run.
    """

    def __init__(self, unique: pa.Table, sources: Iterable[SourceFile]) -> None:
        self._sources = {source.source: source for source in sources}
        self._rows = {row["tensor_id"]: row for row in unique.to_pylist()}
        self.bad: set[str] = set()

    def find(self, tensor_id: str) -> HubTensor | None:
        """The first place that is still good; None when there is none."""
        row = self._rows[tensor_id]
        for place in row["locations"]:
            if place["source"] not in self.bad:
                return HubTensor(tensor_id, row["sha256"], self._at(row, place))
        return None

    def locate(self, tensor_id: str) -> HubLocation:
        """Where the scan found it first."""
        row = self._rows[tensor_id]
        return self._at(row, row["locations"][0])

    def _at(self, row: dict[str, Any], place: dict[str, Any]) -> HubLocation:
        return HubLocation(self._sources[place["source"]], place["start"], row["nbytes"])


@dataclass
class Encoded:
    """Result of the encode step.

    Attributes
    ----------
    blobs : pyarrow.Table
        Rows ``blobs``.
    bad_sources : list of pyarrow.Table
        `BAD_SOURCES` that changed or vanished since the scan.
    """

    blobs: pa.Table
    bad_sources: list[pa.Table] = field(default_factory=list)


def encode_all(job: Job, plans: pa.Table, index: HubIndex) -> Encoded:
    """Encode every planned tensor that can still be read."""
    encoded = Encoded(BLOBS.empty_table())
    stored = find_usable(job.connection, plans["base_id"].drop_null().to_pylist())
    pending = plans.to_pylist()
    round_ = 1
    while pending:
        items = [item for row in pending if (item := _item(row, index, stored)) is not None]
        shards = plan_shards(items, job.options.plan.standalone_codec, job.options.tasks)
        stage = "encode" if round_ == 1 else f"encode-{round_}"
        _forget_lost_packs(job, stage)
        shard_keys = job.fan_out(
            stage,
            encode_shard,
            shards,
            job.store.objects.uri,
            job.options.plan.standalone_codec,
        )
        blobs, failures = (
            job.workspace.rows(stage, name, shard_keys).to_table(columns=schema.names).cast(schema)
            for name, schema in (("blobs", BLOBS), ("failures", FAILURES))
        )
        index.bad.update(failures["source"].to_pylist())
        encoded.bad_sources.append(failures.select(BAD_SOURCES.names).cast(BAD_SOURCES))
        encoded.blobs = _without_lost_bases(pa.concat_tables([encoded.blobs, blobs]), stored)
        done = set(encoded.blobs["tensor_id"].to_pylist())
        # Whatever is tried again is stored alone: its base may be what was lost.
        alone = {"base_id": None, "codec": job.options.plan.standalone_codec}
        pending = [
            row if row["role"] == "opaque" else {**row, **alone}
            for row in plans.to_pylist()
            if row["tensor_id"] not in done and index.find(row["tensor_id"]) is not None
        ]
        round_ += 1
    return encoded


def _forget_lost_packs(job: Job, stage: str) -> None:
    """Shards that an interrupted job finished count only while their packs are there."""
    objects = job.store.objects
    for key in job.workspace.finished(stage):
        rows = job.workspace.rows(stage, "blobs", [key]).to_table(["pack", "offset", "nbytes"])
        ends = pc.add(rows["offset"], rows["nbytes"])
        for pack, end in zip(rows["pack"].to_pylist(), ends.to_pylist(), strict=True):
            try:
                if objects.head(keys.pack(pack)).nbytes >= end:
                    continue
            except ObjectNotFoundError:
                pass
            job.workspace.forget(stage, key)
            break


def _item(
    row: dict[str, object], index: HubIndex, stored: dict[str, BlobLocation]
) -> EncodeItem | None:
    target = index.find(str(row["tensor_id"]))
    if target is None:
        return None
    base_id = row["base_id"]
    base = None if base_id is None else stored.get(str(base_id)) or index.find(str(base_id))
    return EncodeItem(
        target=target,
        dtype=str(row["dtype"]),
        codec=str(row["codec"]),
        base=base,
        alone_nbytes=int(float(str(row["standalone_ratio"])) * int(str(row["nbytes"]))),
    )


def _without_lost_bases(blobs: pa.Table, stored: dict[str, BlobLocation]) -> pa.Table:
    """Drop deltas whose base did not get a blob: they could never be decoded."""
    available = pa.array([*blobs["tensor_id"].to_pylist(), *stored], pa.string())
    decodable = pc.or_(pc.is_null(blobs["base_id"]), pc.is_in(blobs["base_id"], available))
    return blobs.filter(decodable)
