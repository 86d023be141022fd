"""Catalog upkeep: small parts of many runs become few, so that a query opens few files.

Rows keep their ``run``, so nothing is forgotten. The run that merges lists the parts that it took
the rows of in its marker; readers that see the marker skip those, earlier ones still find them until
gc removes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

import pyarrow as pa

from tstore.catalog.catalog import Catalog, sorted_parts, sorted_rows
from tstore.catalog.parquet import RUN_FIELD, read_parts, stream_parts
from tstore.catalog.runs import Part
from tstore.catalog.schema import TABLES
from tstore.settings import MIB

SMALL_NBYTES = 8 * MIB
"""Parts below this are worth merging: they are opened for less than they take to open."""
AT_LEAST = 16
"""Small parts of a table that are merged; fewer are left alone."""
_FINGERPRINT_ROWS = 8 * 1024


@dataclass(frozen=True)
class Merge:
    """Parts to merge, by table.

    Attributes
    ----------
    parts : dict of str to list of Part
    """

    parts: dict[str, list[Part]] = field(default_factory=dict)

    @property
    def keys(self) -> list[str]:
        """Of all parts that are merged: `RunMarker.merged`."""
        return sorted(part.key for parts in self.parts.values() for part in parts)

    def rows(self, catalog: Catalog) -> dict[str, Iterator[pa.Table]]:
        """Their rows for `write_tables`, read as they are taken.

        Raises
        ------
        CatalogDamagedError
            One is damaged, which may hide rows: a sound part must not come of it.
        """
        catalog.check_parts(part for parts in self.parts.values() for part in parts)
        return {
            name: _fingerprints(catalog, parts)
            if name == "fingerprints"
            else _sorted(catalog, name, parts)
            for name, parts in self.parts.items()
        }


def merged_with(
    own: Mapping[str, pa.Table], merged: Mapping[str, Iterator[pa.Table]]
) -> dict[str, pa.Table | Iterator[pa.Table]]:
    """Rows that a run adds, each table's before those that it merges.

    Parameters
    ----------
    own : mapping of str to Table
        Rows of the run by table.
    merged : mapping of str to iterator of Table
        `Merge.rows`.
    """
    tables: dict[str, pa.Table | Iterator[pa.Table]] = {**own}
    for name, rows in merged.items():
        tables[name] = chain(sorted_parts(name, own[name]), rows) if name in own else rows
    return tables


def plan_merge(catalog: Catalog) -> Merge:
    """What is worth merging in a catalog."""
    small = {
        name: [part for part in catalog.parts(name) if part.nbytes < SMALL_NBYTES]
        for name in TABLES
    }
    return Merge({name: parts for name, parts in small.items() if len(parts) >= AT_LEAST})


def _sorted(catalog: Catalog, name: str, parts: list[Part]) -> Iterator[pa.Table]:
    """Rows of all parts in the order of the table; DuckDB sorts them on disk."""
    rows = read_parts(catalog.objects, (p.key for p in parts), TABLES[name].append(RUN_FIELD))
    with catalog.connect() as connection:
        connection.register("merging", rows)
        yield from sorted_rows(name, connection.table("merging"))


def _fingerprints(catalog: Catalog, parts: list[Part]) -> Iterator[pa.Table]:
    """Rows of all parts, one part after the other: sketches are too large to be sorted here."""
    schema = TABLES["fingerprints"].append(RUN_FIELD)
    held, count = list[pa.RecordBatch](), 0
    for batch in stream_parts(catalog.objects, (part.key for part in parts), schema.names):
        held.append(batch)
        count += batch.num_rows
        if count >= _FINGERPRINT_ROWS:
            yield pa.Table.from_batches(held).cast(schema)
            held, count = [], 0
    if count:
        yield pa.Table.from_batches(held).cast(schema)
