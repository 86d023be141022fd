"""Stage 1: read every file once; hash, sketch and describe each of its extents.

A shard is a list of units. A unit is a whole file, or, for a file larger than the task budget, a
range of its extents or the SHA-256 of the whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from tstore.catalog.schema import EXTENTS, SOURCES
from tstore.catalog.workspace import shard_key
from tstore.errors import SourceRejectedError
from tstore.hub.formats import Extent, file_extents
from tstore.hub.reader import SourceFile, SourceReader
from tstore.ids import OPAQUE, Buffer, content_hash, make_tensor_id, sha256
from tstore.settings import SketchSettings, TaskSettings
from tstore.sketch.statistics import plane_entropies, standalone_ratio
from tstore.sketch.tensorsketch import build

MAX_UNITS = 1024
"""Files per shard, so that many tiny ones still spread over the workers."""


@dataclass(frozen=True)
class ScanUnit:
    """One file, or a part of a large one.

    Attributes
    ----------
    source : SourceFile
        What to read, with the tag that it must still have.
    path : str
        A path that the file has in a repository; its ending chooses the format.
    extents : tuple of int or None
        Range of extents to describe; None for all of them.
    digest : bool
        Whether to compute the SHA-256 of the whole file.
    """

    source: SourceFile
    path: str
    extents: tuple[int, int] | None = None
    digest: bool = True


@dataclass(frozen=True)
class ScanShard:
    """Units that one task reads."""

    key: str
    units: tuple[ScanUnit, ...]
    nbytes: int
    memory_nbytes: int


def plan_scan(
    files: Iterable[tuple[SourceFile, str]], sketch: SketchSettings, tasks: TaskSettings
) -> list[ScanShard]:
    """Cut files into shards of about ``tasks.scan_nbytes``, the same for the same files."""
    shards: list[ScanShard] = []
    batch: list[ScanUnit] = []
    batch_nbytes = 0

    def flush() -> None:
        nonlocal batch, batch_nbytes
        if batch:
            largest = max(unit.source.size for unit in batch)
            shards.append(_shard(batch, batch_nbytes, largest, sketch, tasks))
        batch, batch_nbytes = [], 0

    for source, path in files:
        if source.size > tasks.scan_nbytes:
            shards.extend(_split(source, path, sketch, tasks))
            continue
        if batch_nbytes + source.size > tasks.scan_nbytes or len(batch) == MAX_UNITS:
            flush()
        batch.append(ScanUnit(source, path))
        batch_nbytes += source.size
    flush()
    return shards


def _split(
    source: SourceFile, path: str, sketch: SketchSettings, tasks: TaskSettings
) -> Iterator[ScanShard]:
    """Shards of one large file: its SHA-256, and ranges of its extents."""
    whole = ScanUnit(source, path)
    try:
        with SourceReader(source) as reader:
            extents, _ = file_extents(reader, path, opaque_nbytes=tasks.opaque_extent_nbytes)
    except SourceRejectedError:  # the task that meets it again reports it
        yield _shard([whole], source.size, tasks.opaque_extent_nbytes, sketch, tasks)
        return
    digest = replace(whole, extents=(0, 0))
    yield _shard([digest], source.size, tasks.opaque_extent_nbytes, sketch, tasks)
    first = 0
    while first < len(extents):
        last, nbytes = first, 0
        while last < len(extents) and (last == first or nbytes < tasks.scan_nbytes):
            nbytes += extents[last].nbytes
            last += 1
        largest = max(extent.nbytes for extent in extents[first:last])
        unit = replace(whole, extents=(first, last), digest=False)
        yield _shard([unit], nbytes, largest, sketch, tasks)
        first = last


def _shard(
    units: list[ScanUnit],
    nbytes: int,
    largest: int,
    sketch: SketchSettings,
    tasks: TaskSettings,
) -> ScanShard:
    content = [
        [unit.source.source, unit.source.tag, unit.path, unit.extents, unit.digest]
        for unit in units
    ]
    parameters = [sketch.depth, sketch.width, sketch.seed, sketch.min_nbytes]
    key = shard_key([content, parameters, tasks.opaque_extent_nbytes])
    memory = tasks.base_memory_nbytes + 2 * largest  # the extent, and a copy by the file cache
    return ScanShard(key, tuple(units), nbytes, memory)


def scan_shard(
    shard: ScanShard, sketch: SketchSettings, tasks: TaskSettings
) -> dict[str, pa.Table]:
    """Rows ``sources`` and ``extents`` of a shard. A bad file costs only itself."""
    sources: list[dict[str, object]] = []
    extents: list[dict[str, object]] = []
    for unit in shard.units:
        try:
            source, rows = _scan_unit(unit, sketch, tasks.opaque_extent_nbytes)
        except SourceRejectedError as error:
            source, rows = _source_row(unit, None, error, readable=False), []
        sources.append(source)
        extents.extend(rows)
    return {
        "sources": pa.Table.from_pylist(sources, SOURCES),
        "extents": pa.Table.from_pylist(extents, EXTENTS),
    }


def _source_row(
    unit: ScanUnit, digest: str | None, error: Exception | None, *, readable: bool
) -> dict[str, object]:
    return {
        "source": unit.source.source,
        "sha256": digest,
        "reason": type(error).__name__ if error else None,
        "message": str(error) if error else None,
        "readable": readable,
    }


def _scan_unit(
    unit: ScanUnit, sketch: SketchSettings, opaque_nbytes: int
) -> tuple[dict[str, object], list[dict[str, object]]]:
    with SourceReader(unit.source) as reader:
        extents, error = file_extents(reader, unit.path, opaque_nbytes=opaque_nbytes)
        first, last = unit.extents or (0, len(extents))
        digest = hashlib.sha256()
        rows = []
        for extent in extents[first:last]:
            data = reader.read(extent.start, extent.stop)
            rows.append(_extent_row(unit.source.source, extent, data, sketch))
            if unit.digest:
                digest.update(data)
        if unit.digest and unit.extents is not None:
            for start in range(0, unit.source.size, opaque_nbytes):
                stop = min(start + opaque_nbytes, unit.source.size)
                digest.update(reader.read(start, stop))
        reader.check_unchanged()
    file_sha256 = digest.hexdigest() if unit.digest else None
    return _source_row(unit, file_sha256, error, readable=True), rows


def _extent_row(
    source: str, extent: Extent, data: Buffer, sketch: SketchSettings
) -> dict[str, object]:
    row: dict[str, object] = {
        "source": source,
        "index": extent.index,
        "name": extent.name,
        "tensor_id": make_tensor_id(content_hash(data), extent.dtype, extent.shape),
        "dtype": extent.dtype,
        "shape": list(extent.shape),
        "nbytes": extent.nbytes,
        "start": extent.start,
        "sha256": sha256(data),
        "sketch": None,
        "plane_entropy": [],
        "standalone_ratio": None,
    }
    if extent.nbytes:
        entropies = plane_entropies(data, extent.dtype)
        row["plane_entropy"] = entropies.tolist()
        row["standalone_ratio"] = standalone_ratio(entropies, extent.nbytes)
        if extent.dtype != OPAQUE and extent.nbytes >= sketch.min_nbytes:
            row["sketch"] = build(data, extent.dtype, sketch)
    return row
