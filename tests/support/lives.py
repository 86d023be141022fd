"""Stores whose runs are written down row by row: what later runs do to what is there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from tstore.catalog import RunMarker
from tstore.catalog.catalog import commit, write_tables
from tstore.catalog.schema import TABLES
from tstore.catalog.store import open_or_create
from tstore.ids import OPAQUE
from tstore.settings import SketchSettings

Row = dict[str, Any]
_BLANK = {"string": "", "int64": 0, "int32": 0, "double": 0.0, "bool": False}
HEADER = 64
"""Bytes of a made-up pack before its first blob."""


def tensor(number: int, nbytes: int, dtype: str = "U8") -> str:
    """Id of a made-up tensor; its shape tells its size."""
    return f"{number:032x}:{dtype}[{nbytes}]"


def raw_nbytes(tensor_id: str) -> int:
    """Size of a tensor of `tensor`."""
    return int(tensor_id.partition("[")[2].rstrip("]"))


def file_rows(
    repo: str, tensors: Mapping[str, str], *, header: str | None = None
) -> tuple[Row, list[Row]]:
    """The row of a repository's only file, made of these named tensors, and their rows."""
    layout = ([header] if header else []) + [*tensors.values()]
    sizes = [raw_nbytes(tensor_id) for tensor_id in layout]
    place = {"repo": repo, "revision": "main", "path": "model.safetensors"}
    extents = [{"tensor_id": t, "nbytes": n} for t, n in zip(layout, sizes, strict=True)]
    start = sizes[0] if header else 0
    rows = []
    for name, tensor_id in tensors.items():
        nbytes = raw_nbytes(tensor_id)
        rows.append({**place, "name": name, "tensor_id": tensor_id, "start": start,
                     "dtype": "U8", "shape": [nbytes], "nbytes": nbytes})  # fmt: skip
        start += nbytes
    return {**place, "nbytes": sum(sizes), "layout": extents}, rows


def pack_rows(pack: str, blobs: Sequence[tuple[str, int, str | None]]) -> list[Row]:
    """Rows of the blobs of a pack: tensor, size and base, one after the other."""
    rows, offset = [], HEADER
    for tensor_id, nbytes, base_id in blobs:
        dtype = tensor_id.partition(":")[2].partition("[")[0]
        codec = "zstd" if dtype == OPAQUE else "zipnn" if base_id is None else "ulprow"
        rows.append({"tensor_id": tensor_id, "dtype": dtype, "raw_nbytes": raw_nbytes(tensor_id),
                     "pack": pack, "offset": offset, "nbytes": nbytes, "codec": codec,
                     "base_id": base_id})  # fmt: skip
        offset += nbytes
    return rows


def add_run(store: Path, number: int, kind: str, **rows: list[Row]) -> str:
    """Commit a run of these rows; columns that are not given are blank."""
    run = f"202501{number:02d}T000000.000000Z"
    tables = {}
    for name, schema in TABLES.items():
        blank = {field.name: _blank(field) for field in schema}
        given = [{**blank, **row} for row in rows.get(name, [])]
        tables[name] = pa.Table.from_pylist(given, schema)
    objects = open_or_create(str(store), SketchSettings()).objects
    commit(objects, RunMarker(run, kind, "0", {}, {}, write_tables(objects, run, tables)))
    return run


def _blank(field: pa.Field) -> Any:
    if field.nullable:
        return None
    return [] if pa.types.is_list(field.type) else _BLANK[str(field.type)]
