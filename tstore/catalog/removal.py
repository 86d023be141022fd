"""Removing revisions, and taking that back.

A removal is a row; nothing else changes. What only the revision needed is garbage from then on, and
gc removes it after its grace period. Until then the removal can be taken back.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from tstore.catalog.lease import WriterLease
from tstore.catalog.publish import publish_run
from tstore.catalog.schema import REMOVALS
from tstore.catalog.store import Store
from tstore.errors import DataGivenUpError, RepoNotFoundError, RevisionNotFoundError


@dataclass(frozen=True)
class Removal:
    """What a removal hides, or what taking it back shows again.

    Attributes
    ----------
    run_id : str
        The run that says so.
    revisions : tuple of str
    files, nbytes : int
        Files, and their raw bytes.
    freed_nbytes : int
        Stored bytes that nothing else needs.
    """

    run_id: str
    revisions: tuple[str, ...]
    files: int
    nbytes: int
    freed_nbytes: int = 0


def remove(store: Store, writer: WriterLease, repo: str, revision: str | None) -> Removal:
    """Remove a revision of a repository, or all of them.

    Parameters
    ----------
    store : Store
    writer : WriterLease
    repo : str
        Repository id.
    revision : str or None
        Revision or ref; None for the whole repository.

    Raises
    ------
    RepoNotFoundError, RevisionNotFoundError
        There is no such thing now.
    """
    with store.catalog().connect() as connection:
        revisions = _wanted(connection, "current_files", repo, revision)
        before = _needed_nbytes(connection)
        files, nbytes = _size(connection, "current_files", repo, revisions)
    run_id = _publish(store, writer, "rm", repo, revisions, removed=True)
    with store.catalog().connect() as connection:
        freed = before - _needed_nbytes(connection)
    return Removal(run_id, revisions, files, nbytes, freed)


def take_back(store: Store, writer: WriterLease, repo: str, revision: str | None) -> Removal:
    """Bring removed revisions back, as long as gc has left their data.

    Parameters
    ----------
    store : Store
    writer : WriterLease
    repo : str
    revision : str or None
        Revision or ref; None for all that are removed.

    Raises
    ------
    RepoNotFoundError, RevisionNotFoundError
        No such thing is removed.
    DataGivenUpError
        gc has removed what it needs.
    """
    with store.catalog().connect() as connection:
        connection.execute(_REMOVED_FILES)
        revisions = _wanted(connection, "removed_files", repo, revision)
        for path, tensor_id in connection.execute(_GIVEN_UP, [repo, list(revisions)]).fetchall():
            raise DataGivenUpError(
                f"expected the data of {repo}/{path} to be there still, found that gc has removed "
                f"{tensor_id}; ingest the repository again",
                repo=repo,
            )
        files, nbytes = _size(connection, "removed_files", repo, revisions)
    run_id = _publish(store, writer, "undelete", repo, revisions, removed=False)
    return Removal(run_id, revisions, files, nbytes)


_REMOVED_FILES = """
CREATE OR REPLACE TEMP VIEW removed_files AS
FROM (
    SELECT f.* FROM files f JOIN removed r USING (repo, revision) WHERE f.run < r.run
) QUALIFY run = max(run) OVER (PARTITION BY repo, revision)
"""
_GIVEN_UP = """
SELECT path, x.tensor_id FROM removed_files, unnest(layout) AS t(x)
WHERE repo = ? AND list_contains(?, revision)
AND x.tensor_id NOT IN (SELECT tensor_id FROM usable_blobs) LIMIT 1
"""
_NEEDED = """
WITH needed AS (
    SELECT DISTINCT x.tensor_id FROM (SELECT unnest(layout) AS x FROM kept_files)
),
own AS (SELECT base_id FROM current_blobs SEMI JOIN needed USING (tensor_id))
SELECT coalesce(sum(nbytes), 0) FROM current_blobs
WHERE tensor_id IN (FROM needed) OR tensor_id IN (FROM own)
"""


def _wanted(
    connection: duckdb.DuckDBPyConnection, table: str, repo: str, revision: str | None
) -> tuple[str, ...]:
    rows = connection.execute(
        f"SELECT revision, any_value(refs) FROM {table} WHERE repo = ? GROUP BY revision ORDER BY 1",
        [repo],
    ).fetchall()
    if not rows:
        names = connection.sql(f"SELECT DISTINCT repo FROM {table}").fetchall()
        close = difflib.get_close_matches(repo, [name for (name,) in names], n=3)
        hint = f"did you mean {' or '.join(close)}?" if close else "tstore ls shows what is there"
        what = "a repository" if table == "current_files" else "a removed repository"
        raise RepoNotFoundError(f"expected {what} {repo!r}, found none; {hint}", repo=repo)
    if revision is None:
        return tuple(name for name, _ in rows)
    found = tuple(name for name, refs in rows if revision == name or revision in refs)
    if not found:
        known = ", ".join(f"{name} ({', '.join(refs)})" if refs else name for name, refs in rows)
        raise RevisionNotFoundError(
            f"expected revision {revision!r} of {repo}, found only {known}", repo=repo
        )
    return found


def _size(
    connection: duckdb.DuckDBPyConnection, table: str, repo: str, revisions: tuple[str, ...]
) -> tuple[int, int]:
    ((files, nbytes),) = connection.execute(
        f"SELECT count(*), coalesce(sum(nbytes), 0) FROM {table}"
        " WHERE repo = ? AND list_contains(?, revision)",
        [repo, list(revisions)],
    ).fetchall()
    return int(files), int(nbytes)


def _needed_nbytes(connection: duckdb.DuckDBPyConnection) -> int:
    ((nbytes,),) = connection.sql(_NEEDED).fetchall()
    return int(nbytes)


def _publish(
    store: Store,
    writer: WriterLease,
    kind: str,
    repo: str,
    revisions: tuple[str, ...],
    *,
    removed: bool,
) -> str:
    rows = [{"repo": repo, "revision": name, "removed": removed} for name in revisions]
    told = {"kind": kind, "repo": repo, "revisions": list(revisions)}
    tables = {"removals": pa.Table.from_pylist(rows, REMOVALS)}
    return publish_run(store.objects, writer, kind, told, tables, {"revisions": len(rows)})
