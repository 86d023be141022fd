"""What a store holds of a repository: for people and for reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tstore.catalog import Store
from tstore.restore.lookup import StoredFile, blobs_for, files_of, resolve_revision


@dataclass(frozen=True)
class RepoSummary:
    """A repository in a listing; sizes are of its newest revision state."""

    repo: str
    files: int
    nbytes: int
    revisions: tuple[str, ...]


@dataclass(frozen=True)
class TensorDescription:
    """How one tensor of a file is stored.

    Attributes
    ----------
    role : str
        delta, base (a delta of some repository needs it), or alone.
    stored_nbytes : int
        Size of its blob, which duplicates share.
    base : str
        Repository and name under which its base came first; empty without one.
    """

    path: str
    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    role: str
    codec: str
    stored_nbytes: int
    base: str

    def cells(self) -> tuple[str, ...]:
        """Text for a table."""
        shape = "×".join(map(str, self.shape)) or "scalar"
        ratio = f"{self.stored_nbytes / self.nbytes:.3f}" if self.nbytes else ""
        sizes = (f"{self.nbytes:,}", f"{self.stored_nbytes:,}")
        return (self.name, self.dtype, shape, self.role, self.codec, *sizes, ratio, self.base)


@dataclass(frozen=True)
class RepoDescription:
    """A revision of a repository.

    Attributes
    ----------
    nbytes : int
        Raw bytes of its files.
    stored_nbytes : int
        Bytes of the distinct blobs that it needs, without bases that are not its own tensors.
    shared_nbytes : int
        Part of those that other repositories or revisions use as well.
    """

    revision: str
    files: list[StoredFile]
    tensors: list[TensorDescription]
    nbytes: int
    stored_nbytes: int
    shared_nbytes: int


def _tensor(
    path: str, name: str, dtype: str, shape: list[int], nbytes: int, *stored: Any
) -> TensorDescription:
    return TensorDescription(path, name, dtype, tuple(shape), nbytes, *stored)


def list_repos(store: Store) -> list[RepoSummary]:
    """Every repository, sorted by id."""
    with store.catalog().connect() as connection:
        rows = connection.sql(
            "SELECT repo, count(*), sum(nbytes), list(DISTINCT name ORDER BY name) FROM ("
            " SELECT repo, nbytes, CASE WHEN len(refs) > 0 THEN array_to_string(refs, '+')"
            "   ELSE revision END AS name FROM current_files"
            ") GROUP BY repo ORDER BY repo"
        ).fetchall()
    return [RepoSummary(repo, files, nbytes, tuple(names)) for repo, files, nbytes, names in rows]


_TENSORS = """
SELECT t.path, CASE WHEN t.part IS NULL THEN t.name ELSE concat(t.name, ' part ', t.part) END,
       t.dtype, t.shape, t.nbytes,
       CASE WHEN b.base_id IS NOT NULL THEN 'delta'
            WHEN t.tensor_id IN (SELECT base_id FROM current_blobs WHERE base_id IS NOT NULL)
                THEN 'base'
            ELSE 'alone' END,
       coalesce(b.codec, ''), coalesce(b.nbytes, 0), coalesce(o.place, '')
FROM tensors t JOIN current_files f USING (repo, revision, path, run)
LEFT JOIN current_blobs b USING (tensor_id)
LEFT JOIN (
    SELECT tensor_id, first(repo || ' ' || name ORDER BY run, repo, revision, path) AS place
    FROM tensors WHERE tensor_id IN (SELECT base_id FROM current_blobs) GROUP BY tensor_id
) o ON o.tensor_id = b.base_id
WHERE t.repo = ? AND t.revision = ? ORDER BY t.path, t.start, t.name
"""

_SHARED = """
SELECT coalesce(sum(nbytes), 0) FROM current_blobs WHERE tensor_id IN (
    SELECT tensor_id FROM own_ids
    INTERSECT
    SELECT x.tensor_id FROM (
        SELECT unnest(layout) AS x FROM current_files WHERE repo <> ? OR revision <> ?
    )
)
"""


def describe_repo(store: Store, repo: str, revision: str | None = None) -> RepoDescription:
    """Files and tensors of one revision, and what they take.

    Raises
    ------
    RepoNotFoundError, RevisionNotFoundError
    """
    name, _, until = (revision or "").partition("@")
    with store.catalog(until=until or None).connect() as connection:
        found = resolve_revision(connection, repo, name or None)
        files = files_of(connection, repo, found)
        rows = connection.execute(_TENSORS, [repo, found]).fetchall()
        own = sorted({extent.tensor_id for file in files for extent in file.layout})
        blobs = blobs_for(connection, files)
        connection.register("own_ids", pa.table({"tensor_id": pa.array(own, pa.string())}))
        ((shared,),) = connection.execute(_SHARED, [repo, found]).fetchall()
    return RepoDescription(
        revision=found,
        files=files,
        tensors=[_tensor(*row) for row in rows],
        nbytes=sum(file.nbytes for file in files),
        stored_nbytes=sum(blobs[tensor_id].nbytes for tensor_id in own),
        shared_nbytes=shared,
    )
