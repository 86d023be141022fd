"""Groups by where their fingerprints lie: what the driver knows of them, without any sketch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import duckdb
import numpy as np
import pyarrow as pa

from tstore.sketch.groups import GroupKey, GroupRows
from tstore.sketch.parts import FingerprintParts

Item = TypeVar("Item")


@dataclass(frozen=True)
class PlacedGroups:
    """Groups of sketched tensors, and the parts to read them from.

    Attributes
    ----------
    parts : FingerprintParts
    groups : mapping of (dtype, shape) to GroupRows
        In the order of the parts' rows.
    digests : mapping of (dtype, shape) to str
        Hash of the tensor ids of each group and their order.
    """

    parts: FingerprintParts
    groups: Mapping[GroupKey, GroupRows]
    digests: Mapping[GroupKey, str]


def place_groups(
    connection: duckdb.DuckDBPyConnection, table: str, parts: FingerprintParts
) -> PlacedGroups:
    """Groups of a DuckDB table.

    Parameters
    ----------
    connection : DuckDBPyConnection
    table : str
        With the columns tensor_id, dtype, shape, nbytes, ``row`` (of the parts) and ``position``
        (ascending in the order that the tensors of a group are to have).
    parts : FingerprintParts
        8 bytes per tensor stay in memory.
    """
    found = connection.sql(
        "SELECT dtype, shape, any_value(nbytes), count(*),"
        " bit_xor(md5_number(tensor_id || ' ' || position))"
        f" FROM {table} GROUP BY dtype, shape ORDER BY dtype, shape::VARCHAR"
    ).fetchall()
    order = connection.sql(
        f'SELECT "row" FROM {table} ORDER BY dtype, shape::VARCHAR, position'
    ).to_arrow_table()
    rows = order["row"].to_numpy()
    groups, digests, start = dict[GroupKey, GroupRows](), dict[GroupKey, str](), 0
    for dtype, shape, nbytes, count, digest in found:
        key = dtype, tuple(shape)
        groups[key] = GroupRows(*key, nbytes, rows[start : start + count])
        digests[key] = f"{digest:032x}"
        start += count
    return PlacedGroups(parts, groups, digests)


def numbered(
    batches: Iterator[pa.RecordBatch], schema: pa.Schema, columns: Sequence[str]
) -> pa.RecordBatchReader:
    """Batches of some columns of `schema` and, as ``nth``, the number of each row; read once."""
    fields = [schema.field(name) for name in columns]
    schema = pa.schema([*fields, pa.field("nth", pa.int64())])

    def counted() -> Iterator[pa.RecordBatch]:
        first = 0
        for batch in batches:
            nth = pa.array(np.arange(first, first + batch.num_rows))
            first += batch.num_rows
            arrays = [batch[name].cast(schema.field(name).type) for name in columns]
            yield pa.RecordBatch.from_arrays([*arrays, nth], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, counted())


def batched(items: Iterable[Item], size: Callable[[Item], int], limit: int) -> Iterator[list[Item]]:
    """Consecutive items of at most `limit` together; a larger one is alone."""
    batch, held = list[Item](), 0
    for item in items:
        if batch and held + size(item) > limit:
            yield batch
            batch, held = [], 0
        batch.append(item)
        held += size(item)
    if batch:
        yield batch
