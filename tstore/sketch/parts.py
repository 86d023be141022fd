"""Reading fingerprints by their place in Parquet parts, a few row groups at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tstore.catalog import Catalog
from tstore.catalog.parquet import opened_part
from tstore.errors import CatalogDamagedError
from tstore.objects import open_objects
from tstore.sketch.groups import GroupRows, SketchGroup

_COLUMNS = ("tensor_id", "sketch", "standalone_ratio")


@dataclass(frozen=True)
class FingerprintParts:
    """Parquet parts with rows ``fingerprints``, numbered as if they were one table.

    Attributes
    ----------
    uri : str
        Object store that has them.
    keys : tuple of str
    ends : tuple of int
        Rows up to the end of each part.
    """

    uri: str
    keys: tuple[str, ...]
    ends: tuple[int, ...]

    @classmethod
    def of(cls, catalog: Catalog) -> Self:
        """Those of the committed runs."""
        written = catalog.parts("fingerprints")
        return cls(
            uri=catalog.objects.uri,
            keys=tuple(part.key for part in written),
            ends=tuple(accumulate(part.rows for part in written)),
        )

    def read(self, groups: Sequence[GroupRows]) -> list[SketchGroup]:
        """Read groups in one pass; their sketches are in memory once.

        Parameters
        ----------
        groups : sequence of GroupRows
            All with sketches.

        Raises
        ------
        CatalogDamagedError
            A part is missing or unreadable, or has other rows than it should.
        """
        wanted = np.concatenate([np.empty(0, np.int64), *(group.rows for group in groups)])
        order = np.argsort(wanted, kind="stable")
        ids = np.empty(wanted.size, dtype=np.object_)
        standalone = np.empty(wanted.size)
        sketches = np.empty((0, 0), dtype=np.int16)
        done = 0
        for found in self._tables(wanted[order]):
            rows = order[done : done + found.num_rows]
            done += found.num_rows
            values = _sketches(found, sketches.shape[1])
            if not sketches.size:
                sketches = np.empty((wanted.size, values.shape[1]), dtype=np.int16)
            ids[rows], sketches[rows] = found["tensor_id"].to_pylist(), values
            standalone[rows] = found["standalone_ratio"].to_numpy()
        bounds = pairwise(accumulate((group.rows.size for group in groups), initial=0))
        return [
            SketchGroup(
                group.dtype,
                group.shape,
                group.nbytes,
                ids=tuple(ids[start:stop]),
                sketches=sketches[start:stop],
                standalone=standalone[start:stop],
            )
            for group, (start, stop) in zip(groups, bounds, strict=True)
        ]

    def tables(self) -> Iterator[tuple[int, pa.Table]]:
        """Number of the first row and all rows of each part, one after the other."""
        objects = open_objects(self.uri)
        for key, (first, _) in zip(self.keys, pairwise((0, *self.ends)), strict=True):
            with opened_part(objects, key) as part:
                yield first, part.read(use_threads=False)

    def _tables(self, wanted: NDArray[np.int64]) -> Iterator[pa.Table]:
        """The wanted rows, ascending, from one row group at a time."""
        objects = open_objects(self.uri)
        for key, (first, end) in zip(self.keys, pairwise((0, *self.ends)), strict=True):
            rows = wanted[np.searchsorted(wanted, first) : np.searchsorted(wanted, end)] - first
            if rows.size:
                with opened_part(objects, key) as part:
                    yield from _row_groups(part, rows)


def _row_groups(part: pq.ParquetFile, rows: NDArray[np.int64]) -> Iterator[pa.Table]:
    """The given rows of one part."""
    first = 0
    for number in range(part.num_row_groups):
        end = first + part.metadata.row_group(number).num_rows
        some = rows[np.searchsorted(rows, first) : np.searchsorted(rows, end)] - first
        if some.size:
            table = part.read_row_group(number, columns=_COLUMNS, use_threads=False)
            yield table.take(pa.array(some))
        first = end
    if rows[-1] >= first:
        raise pa.ArrowInvalid(f"{first} rows where {rows[-1] + 1} were expected")


def _sketches(rows: pa.Table, width: int) -> NDArray[np.int16]:
    """Sketches as a matrix; a width of 0 is not known yet."""
    column = rows["sketch"].combine_chunks()
    values: NDArray[np.int16] = column.flatten().to_numpy()
    width = width or values.size // rows.num_rows
    lengths = np.diff(column.offsets.to_numpy())
    if column.null_count or not width or not (lengths == width).all():
        raise CatalogDamagedError(
            f"expected sketches of {width} numbers, found a row with more, fewer or none; restore "
            "the fingerprints from a backup"
        )
    return values.reshape(-1, width)
