"""Tensors of the store by group: those held whole are bases that cost nothing more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import duckdb
import pyarrow as pa

from tstore.catalog import Catalog
from tstore.catalog.parquet import stream_parts
from tstore.catalog.schema import FINGERPRINTS
from tstore.plan.placed import PlacedGroups, numbered, place_groups
from tstore.settings import SketchSettings
from tstore.sketch.groups import GroupKey
from tstore.sketch.parts import FingerprintParts

_KEYS = pa.schema([FINGERPRINTS.field("dtype"), FINGERPRINTS.field("shape")])
_COLUMNS = ["tensor_id", "dtype", "shape", "nbytes"]

WHOLE = "SELECT tensor_id FROM usable_blobs WHERE base_id IS NULL"
"""Query of the tensors that are stored without a base."""

# A tensor that was lost and stored again has several fingerprints, all alike.
_STORED = """
CREATE OR REPLACE TEMP TABLE stored_tensors AS
SELECT tensor_id, dtype, shape, any_value(nbytes) AS nbytes, min(nth) AS "row",
       row_number() OVER (PARTITION BY dtype, shape ORDER BY tensor_id) AS position
FROM numbered_fingerprints
WHERE nbytes >= $min_nbytes
  AND ((dtype, shape) IN (SELECT (dtype, shape) FROM wanted_keys)
       OR (len(shape) > 1 AND (dtype, shape[2:]) IN (SELECT (dtype, shape[2:]) FROM wanted_keys)))
  AND tensor_id IN ({among})
GROUP BY tensor_id, dtype, shape
"""


def place_stored(
    connection: duckdb.DuckDBPyConnection,
    catalog: Catalog,
    wanted: Iterable[GroupKey],
    sketch: SketchSettings,
    among: str = WHOLE,
) -> PlacedGroups:
    """Groups of tensors that earlier runs stored, each by name.

    Parameters
    ----------
    connection : DuckDBPyConnection
        `Catalog.connect`.
    catalog : Catalog
        The same.
    wanted : iterable of (dtype, shape)
        What is to be planned. Only groups of these shapes are here, and of shapes with more or
        fewer of the same rows.
    sketch : SketchSettings
        Of the sketches.
    among : str
        Query of the tensor ids to take.
    """
    keys = [{"dtype": dtype, "shape": shape} for dtype, shape in wanted]
    connection.register("wanted_keys", pa.Table.from_pylist(keys, _KEYS))
    with numbered_fingerprints(connection, catalog, _COLUMNS):
        connection.execute(_STORED.format(among=among), {"min_nbytes": sketch.min_nbytes})
    connection.unregister("wanted_keys")
    return place_groups(connection, "stored_tensors", FingerprintParts.of(catalog))


@contextmanager
def numbered_fingerprints(
    connection: duckdb.DuckDBPyConnection, catalog: Catalog, columns: list[str]
) -> Iterator[None]:
    """In the block, one query may read the view ``numbered_fingerprints``.

    Parameters
    ----------
    connection : DuckDBPyConnection
        `Catalog.connect`.
    catalog : Catalog
        The same.
    columns : list of str
        Of ``fingerprints``; beside them, ``nth`` is the row as `FingerprintParts.of` counts.
    """
    written = (part.key for part in catalog.parts("fingerprints"))
    batches = stream_parts(catalog.objects, written, columns)
    connection.register("numbered_fingerprints", numbered(batches, FINGERPRINTS, columns))
    yield
    connection.unregister("numbered_fingerprints")
