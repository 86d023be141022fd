"""A store opened for questions about its models."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import duckdb
import numpy as np
from numpy.typing import NDArray

from tstore.catalog import Catalog, Store
from tstore.errors import RepoNotFoundError
from tstore.lineage.models import Occurrences, read_models
from tstore.lineage.places import Place, each_place
from tstore.restore.lookup import resolve_revision
from tstore.sketch.parts import FingerprintParts


@dataclass(frozen=True)
class Opened:
    """An open catalog and what lies in it."""

    store: Store
    catalog: Catalog
    connection: duckdb.DuckDBPyConnection
    found: Occurrences

    def places(self, wanted: NDArray[np.bool_], targets: NDArray[np.bool_]) -> Iterator[Place]:
        """See `each_place`."""
        parts = FingerprintParts.of(self.catalog)
        return each_place(self.found, parts, self.store.sketch, wanted, targets)

    def of_repo(self, repo: str, revision: str | None) -> NDArray[np.bool_]:
        """Which models a revision has."""
        name = resolve_revision(self.connection, repo, revision)
        models = self.found.models
        wanted = np.array([m.repo == repo and m.revision == name for m in models], dtype=np.bool_)
        if not wanted.any():
            raise RepoNotFoundError(
                f"expected tensors in {repo}, found none; tstore info shows what it holds",
                repo=repo,
            )
        return wanted


@contextmanager
def opened(store: Store) -> Iterator[Opened]:
    """A context with what the catalog knows of the models."""
    catalog = store.catalog()
    with catalog.connect() as connection:
        found = read_models(connection, catalog, store.sketch.min_nbytes)
        yield Opened(store, catalog, connection, found)
