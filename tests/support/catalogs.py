"""Runs of made-up rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tstore.catalog import RunMarker
from tstore.catalog.catalog import commit, write_tables
from tstore.catalog.runs import Part
from tstore.catalog.schema import TABLES
from tstore.objects import ObjectStore

RUNS = [f"20250101T00000{number}.000000Z" for number in range(5)]


def sample_value(kind: pa.DataType, number: int) -> Any:
    """A value of an Arrow type that differs from those of other numbers."""
    if pa.types.is_string(kind):
        return f"text-{number:03d}-é"
    if pa.types.is_boolean(kind):
        return number % 2 == 0
    if pa.types.is_integer(kind):
        return (-1) ** number * (2 ** (kind.bit_width - 1) - 1 - number)
    if pa.types.is_floating(kind):
        return number + 0.1
    if pa.types.is_list(kind):
        return [sample_value(kind.value_type, number + i) for i in range(number % 3)]
    assert pa.types.is_struct(kind)
    return {field.name: sample_value(field.type, number) for field in kind}


def sample_rows(schema: pa.Schema, count: int = 7) -> pa.Table:
    """Rows in which every value occurs, nulls and empty lists too."""
    return pa.Table.from_pylist(
        [
            {
                field.name: None if field.nullable and n % 3 == 0 else sample_value(field.type, n)
                for field in schema
            }
            for n in reversed(range(count))
        ],
        schema,
    )


def marker(run_id: str, parts: dict[str, list[Part]], *, merged: Sequence[str] = ()) -> RunMarker:
    """Marker of a run with these parts."""
    counts = {"files": 1}
    return RunMarker(run_id, "ingest", "1.2.3", {"hub": "h"}, counts, parts, merged=[*merged])


def add_run(objects: ObjectStore, run_id: str, **rows: list[dict[str, Any]]) -> None:
    """Commit a run of these rows, given as lists of dicts with the columns that matter."""
    tables = {}
    for name, values in rows.items():
        blank = sample_rows(TABLES[name], 2).to_pylist()[0]
        tables[name] = pa.Table.from_pylist([{**blank, **v} for v in values], TABLES[name])
    commit(objects, marker(run_id, write_tables(objects, run_id, tables)))
