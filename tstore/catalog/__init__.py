"""The catalog: immutable Parquet parts, visible through the commit markers of runs."""

from tstore.catalog.catalog import Catalog
from tstore.catalog.runs import RunMarker
from tstore.catalog.store import Store, open_store

__all__ = ["Catalog", "RunMarker", "Store", "open_store"]
