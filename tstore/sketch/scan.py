"""Stage 1: read every file once; hash, sketch and describe each of its extents.

A shard is a list of units. A unit is a whole file, or, for a file so large that the other workers
would wait for the one that reads it, a range of its extents or the SHA-256 of the whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tstore.activity import spending
from tstore.catalog.schema import EXTENTS, SOURCES
from tstore.catalog.workspace import shard_key
from tstore.errors import LayoutError, SourceRejectedError, WorkerLostError
from tstore.hub.formats import Extent, file_extents
from tstore.hub.reader import SourceFile, SourceReader, open_source
from tstore.ids import OPAQUE, content_hash, make_tensor_id, sha256
from tstore.objects.ahead import AHEAD_NBYTES, read_ahead
from tstore.settings import MIB, SketchSettings, TaskSettings
from tstore.sketch.statistics import plane_entropies, standalone_ratio
from tstore.sketch.tensorsketch import build

MAX_UNITS = 1024
"""Files per shard, so that many tiny ones still spread over the workers."""
RUN_NBYTES = 8 * MIB
"""Extents up to this size together are read at once."""
MAX_SHARE = 1 / 32
"""A larger file than this share of the whole hub is split. It is read twice then: its SHA-256 takes
its bytes in order."""


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

    def halves(self) -> tuple[ScanShard, ...]:
        """The same files as two shards; nothing if it is one."""
        middle = len(self.units) // 2
        parts = (self.units[:middle], self.units[middle:]) if middle else ()
        return tuple(
            ScanShard(
                key=shard_key([self.key, number]),
                units=units,
                nbytes=sum(unit.source.size for unit in units),
                memory_nbytes=self.memory_nbytes,
            )
            for number, units in enumerate(parts)
        )


def plan_scan(
    files: Sequence[tuple[SourceFile, str]], sketch: SketchSettings, tasks: TaskSettings
) -> list[ScanShard]:
    """Cut files into shards of about ``tasks.scan_nbytes``, the same for the same files."""
    shards: list[ScanShard] = []
    split_from = max(tasks.scan_nbytes, MAX_SHARE * sum(source.size for source, _ in files))
    batch: list[ScanUnit] = []
    batch_nbytes = 0

    def flush() -> None:
        nonlocal batch, batch_nbytes
        if batch:
            largest = max(unit.source.size for unit in batch)
            shards.append(_shard(batch, batch_nbytes, largest, sketch, tasks))
        batch, batch_nbytes = [], 0

    for source, path in files:
        if source.size > split_from:
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
        with open_source(source) as reader:
            extents, _ = _extents(reader, path, tasks)
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
    key = shard_key([content, parameters, tasks.opaque_extent_nbytes, tasks.tensor_extent_nbytes])
    largest = min(largest, max(tasks.opaque_extent_nbytes, tasks.tensor_extent_nbytes))
    memory = (
        tasks.base_memory_nbytes + AHEAD_NBYTES + 2 * largest
    )  # the extent, and a copy by the file cache
    return ScanShard(key, tuple(units), nbytes, memory)


def scan_shard(
    shard: ScanShard, sketch: SketchSettings, tasks: TaskSettings
) -> dict[str, pa.Table]:
    """Rows ``sources`` and ``extents`` of a shard. A bad file costs only itself."""
    sources: list[dict[str, object]] = []
    extents: list[dict[str, object]] = []
    for unit in shard.units:
        try:
            source, rows = _scan_unit(unit, sketch, tasks)
        except SourceRejectedError as error:
            source, rows = _source_row(unit, None, error, readable=False), []
        sources.append(source)
        extents.extend(rows)
    return {
        "sources": pa.Table.from_pylist(sources, SOURCES),
        "extents": pa.Table.from_pylist(extents, EXTENTS),
    }


def rows_of_lost(shard: ScanShard, error: WorkerLostError) -> dict[str, pa.Table]:
    """What is left of a file that no worker survives: the reason why it is not stored."""
    rows = [_source_row(unit, None, error, readable=False) for unit in shard.units]
    return {
        "sources": pa.Table.from_pylist(rows, SOURCES),
        "extents": EXTENTS.empty_table(),
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


def _extents(
    reader: SourceReader, path: str, tasks: TaskSettings
) -> tuple[list[Extent], LayoutError | None]:
    return file_extents(
        reader,
        path,
        opaque_nbytes=tasks.opaque_extent_nbytes,
        tensor_nbytes=tasks.tensor_extent_nbytes,
    )


def _scan_unit(
    unit: ScanUnit, sketch: SketchSettings, tasks: TaskSettings
) -> tuple[dict[str, object], list[dict[str, object]]]:
    digest = hashlib.sha256()
    rows = []
    with open_source(unit.source) as reader:
        extents, error = _extents(reader, unit.path, tasks)
        first, last = unit.extents or (0, len(extents))
        runs = list(_runs(extents[first:last]))
        only_digest = unit.digest and unit.extents is not None
        ranges = (
            _steps(unit.source.size) if only_digest else [(r[0].start, r[-1].stop) for r in runs]
        )
        for number, data in enumerate(_read(reader, ranges)):
            if unit.digest:
                with spending("hash file", data.nbytes):
                    digest.update(data)
            for extent in () if only_digest else runs[number]:
                offset = extent.start - ranges[number][0]
                part = data[offset : offset + extent.nbytes]
                rows.append(_extent_row(unit.source.source, extent, part, sketch))
        reader.check_unchanged()
    file_sha256 = digest.hexdigest() if unit.digest else None
    return _source_row(unit, file_sha256, error, readable=True), rows


def _runs(extents: Iterable[Extent]) -> Iterator[list[Extent]]:
    """Extents that follow one another, to be read at once."""
    run: list[Extent] = []
    for extent in extents:
        if run and extent.stop - run[0].start > RUN_NBYTES:
            yield run
            run = []
        run.append(extent)
    if run:
        yield run


def _steps(size: int) -> list[tuple[int, int]]:
    return [(start, min(start + RUN_NBYTES, size)) for start in range(0, size, RUN_NBYTES)]


def _read(reader: SourceReader, ranges: Iterable[tuple[int, int]]) -> Iterator[NDArray[np.uint8]]:
    reads = (
        (reader.file.source, stop - start, partial(reader.read, start, stop))
        for start, stop in ranges
    )
    for (start, stop), take in zip(ranges, read_ahead(reads), strict=True):
        with spending("read", stop - start):
            data = take()
        yield data


def _extent_row(
    source: str, extent: Extent, data: NDArray[np.uint8], sketch: SketchSettings
) -> dict[str, object]:
    with spending("hash", extent.nbytes):
        tensor_id = make_tensor_id(content_hash(data), extent.dtype, extent.shape)
        extent_sha256 = sha256(data)
    row: dict[str, object] = {
        "source": source,
        "index": extent.index,
        "name": extent.name,
        "part": extent.part,
        "tensor_id": tensor_id,
        "dtype": extent.dtype,
        "shape": list(extent.shape),
        "nbytes": extent.nbytes,
        "start": extent.start,
        "sha256": extent_sha256,
        "sketch": None,
        "plane_entropy": [],
        "standalone_ratio": None,
    }
    if extent.nbytes:
        with spending("sketch", extent.nbytes):
            entropies = plane_entropies(data, extent.dtype)
            row["plane_entropy"] = entropies.tolist()
            row["standalone_ratio"] = standalone_ratio(entropies, extent.nbytes)
            if extent.dtype != OPAQUE and extent.nbytes >= sketch.min_nbytes:
                row["sketch"] = build(data, extent.dtype, sketch)
    return row
