"""Find repositories, their files and the blobs that those need."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from tstore.catalog.blobs import BLOB_COLUMNS, BlobLocation
from tstore.errors import (
    BlobMissingError,
    CatalogDamagedError,
    RepoNotFoundError,
    RevisionNotFoundError,
)

DEFAULT_REF = "main"


@dataclass(frozen=True)
class Extent:
    """One piece of a file."""

    tensor_id: str
    nbytes: int


@dataclass(frozen=True)
class StoredFile:
    """A file of a committed revision.

    Attributes
    ----------
    repo, revision, path : str
    nbytes : int
    sha256 : str
        Of the whole file, hex.
    layout : tuple of Extent
        Pieces that give the file, in order.
    """

    repo: str
    revision: str
    path: str
    nbytes: int
    sha256: str
    layout: tuple[Extent, ...]


def resolve_revision(connection: duckdb.DuckDBPyConnection, repo: str, revision: str | None) -> str:
    """Revision that a name stands for: a revision or a ref; None for ``main``, else the newest.

    Raises
    ------
    RepoNotFoundError, RevisionNotFoundError
    """
    rows = connection.execute(
        "SELECT revision, any_value(refs), any_value(run) AS newest FROM current_files"
        " WHERE repo = ? GROUP BY revision ORDER BY newest DESC",
        [repo],
    ).fetchall()
    if not rows:
        repos = connection.sql("SELECT DISTINCT repo FROM files").fetchall()
        close = difflib.get_close_matches(repo, [name for (name,) in repos], n=3)
        hint = f"did you mean {' or '.join(close)}?" if close else "tstore ls shows them"
        raise RepoNotFoundError(
            f"expected a repository {repo!r} in the store, found none; {hint}", repo=repo
        )
    wanted = revision or DEFAULT_REF
    for name, refs, _ in rows:
        if wanted == name or wanted in refs:
            return str(name)
    if revision is None:
        return str(rows[0][0])
    known = ", ".join(f"{name} ({', '.join(refs)})" if refs else name for name, refs, _ in rows)
    raise RevisionNotFoundError(
        f"expected revision {revision!r} of {repo}, found only {known}", repo=repo
    )


def files_of(
    connection: duckdb.DuckDBPyConnection, repo: str | None = None, revision: str | None = None
) -> list[StoredFile]:
    """Files of one revision, or of all current ones, sorted by repository, revision and path."""
    rows = connection.execute(
        "SELECT repo, revision, path, nbytes, sha256, layout FROM current_files"
        " WHERE (? IS NULL OR repo = ?) AND (? IS NULL OR revision = ?)"
        " ORDER BY repo, revision, path",
        [repo, repo, revision, revision],
    ).fetchall()
    return [
        StoredFile(repo, revision, path, nbytes, sha256, tuple(Extent(**e) for e in layout))
        for repo, revision, path, nbytes, sha256, layout in rows
    ]


def blobs_for(
    connection: duckdb.DuckDBPyConnection, files: Iterable[StoredFile]
) -> dict[str, BlobLocation]:
    """Blobs that these files need, bases included, by tensor id.

    Raises
    ------
    BlobMissingError
        A needed tensor has no blob in any committed run.
    CatalogDamagedError
        A base is itself a delta.
    """
    needed = sorted({extent.tensor_id for file in files for extent in file.layout})
    found = _blobs(connection, needed)
    bases = sorted({blob.base_id for blob in found.values() if blob.base_id} - found.keys())
    found |= _blobs(connection, bases)
    for tensor_id in (*needed, *bases):
        if tensor_id not in found:
            raise BlobMissingError(
                f"expected a blob of {tensor_id} in the catalog, found none; "
                "tstore verify lists what else is affected",
                tensor_id=tensor_id,
            )
    for blob in found.values():
        if blob.base_id is not None and found[blob.base_id].base_id is not None:
            raise CatalogDamagedError(
                f"expected the base {blob.base_id} of {blob.tensor_id} to be stored standalone, "
                "found a delta; tstore verify lists what else is affected",
                tensor_id=blob.tensor_id,
            )
    return found


def _blobs(connection: duckdb.DuckDBPyConnection, ids: list[str]) -> dict[str, BlobLocation]:
    connection.register("needed", pa.table({"tensor_id": pa.array(ids, pa.string())}))
    rows = connection.sql(
        f"SELECT {BLOB_COLUMNS} FROM current_blobs SEMI JOIN needed USING (tensor_id)"
    ).fetchall()
    return {row[0]: BlobLocation(*row) for row in rows}
