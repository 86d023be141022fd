"""Tensors that the store holds whole: the bases that cost nothing more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import duckdb
import pyarrow as pa

from tstore.catalog.schema import FINGERPRINTS
from tstore.sketch.groups import GroupKey, Groups, SketchGroup, TableGroups

BATCH = 32 * 1024
"""Sketches read at a time: 256 MiB at the default size. One group may be larger."""

# A tensor that was lost and stored again has several fingerprints.
_STORED_WHOLE = """
CREATE OR REPLACE TEMP TABLE stored_whole AS
SELECT DISTINCT ON (f.tensor_id) f.tensor_id, f.run, f.dtype, f.shape
FROM fingerprints f JOIN usable_blobs b USING (tensor_id)
WHERE b.base_id IS NULL AND f.sketch IS NOT NULL
ORDER BY f.tensor_id, f.run
"""
_SKETCHES = """
SELECT f.tensor_id, f.dtype, f.shape, f.nbytes, f.sketch, f.standalone_ratio
FROM fingerprints f
JOIN stored_whole s ON f.tensor_id = s.tensor_id AND f.run = s.run
JOIN stored_batch k ON s.dtype = k.dtype AND s.shape = k.shape
ORDER BY f.tensor_id
"""
_KEYS = pa.schema([FINGERPRINTS.field("dtype"), FINGERPRINTS.field("shape")])


class StoredGroups(Groups):
    """Groups of the tensors that earlier runs stored standalone, read in batches.

    Each read goes through all sketches of the catalog, so groups are best asked for in the order
    of `wanted`.

    Parameters
    ----------
    connection : DuckDBPyConnection
        `Catalog.connect`; gets the temporary tables ``stored_whole`` and ``stored_batch``.
    wanted : iterable of (dtype, shape)
        What is to be planned. Only groups of these dtypes and row shapes are here.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, wanted: Iterable[GroupKey]) -> None:
        self._connection = connection
        wanted = list(wanted)
        connection.execute(_STORED_WHOLE)
        rows = connection.sql("SELECT dtype, shape, count(*) FROM stored_whole GROUP BY ALL")
        counts = {(dtype, tuple(shape)): count for dtype, shape, count in rows.fetchall()}
        kin = {(dtype, shape[1:]) for dtype, shape in wanted}
        others = sorted(key for key in counts if (key[0], key[1][1:]) in kin)
        keys = [key for key in dict.fromkeys([*wanted, *others]) if key in counts]
        self._batches = _batches(keys, counts)
        self._batch_of = {key: n for n, batch in enumerate(self._batches) for key in batch}
        self._loaded = -1
        self._groups: Groups = {}

    def __getitem__(self, key: GroupKey) -> SketchGroup:
        number = self._batch_of[key]
        if number != self._loaded:
            self._groups = {}  # before the next is read
            rows = [{"dtype": dtype, "shape": shape} for dtype, shape in self._batches[number]]
            self._connection.register("stored_batch", pa.Table.from_pylist(rows, _KEYS))
            self._groups = TableGroups(self._connection.sql(_SKETCHES).to_arrow_table())
            self._loaded = number
        return self._groups[key]

    def __iter__(self) -> Iterator[GroupKey]:
        return iter(self._batch_of)

    def __len__(self) -> int:
        return len(self._batch_of)


def _batches(keys: Iterable[GroupKey], counts: dict[GroupKey, int]) -> list[list[GroupKey]]:
    """Consecutive keys of at most `BATCH` tensors together."""
    batches: list[list[GroupKey]] = []
    held = BATCH
    for key in keys:
        if held + counts[key] > BATCH:
            batches.append([])
            held = 0
        batches[-1].append(key)
        held += counts[key]
    return batches
