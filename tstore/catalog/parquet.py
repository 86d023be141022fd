"""Arrow tables to and from Parquet objects; the one place that fixes the file options."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from tstore.errors import CatalogDamagedError, ObjectStoreUnavailableError
from tstore.objects import ObjectStore

ROW_GROUP_ROWS = 64 * 1024
"""Small enough that row-group statistics prune a point look-up, large enough to scan fast."""
SKETCH_GROUP_ROWS = 2048
"""The same for rows with sketches: 16 MiB at the default size."""

RUN_FIELD = pa.field("run", pa.string())
"""Of committed rows: which run added them. A column, not a hive partition, since parts of several
runs are merged."""
_SKETCH = "sketch.list.element"
_FORMAT = ds.ParquetFileFormat(
    default_fragment_scan_options=ds.ParquetFragmentScanOptions(page_checksum_verification=True)
)
"""Without it a flipped bit may read as another path or size."""


def to_bytes(table: pa.Table) -> pa.Buffer:
    """One Parquet file, zstd-compressed, the same bytes for the same rows."""
    sink = pa.BufferOutputStream()
    # Sketch buckets are small integers around zero: bit-packed deltas take a third of plain
    # int32, and every Parquet reader knows them.
    encodings = {_SKETCH: "DELTA_BINARY_PACKED"} if "sketch" in table.column_names else None
    columns = [name for name in table.column_names if name != "sketch"]
    group_rows = SKETCH_GROUP_ROWS if encodings else ROW_GROUP_ROWS
    pq.write_table(
        table,
        sink,
        compression="zstd",
        row_group_size=group_rows,
        use_dictionary=columns,
        column_encoding=encodings,
        write_page_checksum=True,
    )
    return sink.getvalue()


def read_parts(objects: ObjectStore, keys: Iterable[str], schema: pa.Schema) -> ds.Dataset:
    """A dataset over Parquet objects, empty if there are none.

    Raises
    ------
    CatalogDamagedError
        An object is missing.
    """
    keys = list(keys)
    if not keys:
        return ds.dataset(schema.empty_table())
    try:
        return ds.dataset(keys, filesystem=objects.filesystem(), format=_FORMAT, schema=schema)
    except FileNotFoundError as error:
        raise CatalogDamagedError(
            f"expected the Parquet object {error}, found none; restore it from a backup"
        ) from error


def check_answered(objects: ObjectStore, error: Exception) -> None:
    """`ObjectStoreUnavailableError` if a read failed because the server did not answer.

    Of an error that went through DuckDB only the text is left.
    """
    if ObjectStoreUnavailableError.__name__ in str(error):
        reason = str(error).partition(" Detail:")[0]
        raise ObjectStoreUnavailableError(
            f"expected {objects.uri} to answer, found {reason}; try again once it does",
            uri=objects.uri,
        ) from error


@contextmanager
def opened_part(objects: ObjectStore, key: str) -> Iterator[pq.ParquetFile]:
    """A Parquet object; what goes wrong with it inside the context is its damage.

    Raises
    ------
    CatalogDamagedError
        It is missing or cannot be read.
    ObjectStoreUnavailableError
        The server did not answer.
    """
    try:
        with (
            objects.filesystem().open_input_file(key) as file,
            pq.ParquetFile(file, page_checksum_verification=True) as part,
        ):
            yield part
    except (OSError, pa.ArrowException) as error:
        check_answered(objects, error)
        raise CatalogDamagedError(
            f"expected the Parquet object {key}, found {error}; restore it from a backup", key=key
        ) from error


def stream_parts(
    objects: ObjectStore, keys: Iterable[str], columns: list[str]
) -> Iterator[pa.RecordBatch]:
    """Rows of Parquet objects, a few at a time, in order.

    A dataset keeps some 80 KB for each file that it has seen; here one is open at a time.

    Raises
    ------
    CatalogDamagedError
        An object is missing or cannot be read.
    """
    for key in keys:
        with opened_part(objects, key) as part:
            yield from part.iter_batches(SKETCH_GROUP_ROWS, columns=columns, use_threads=False)
