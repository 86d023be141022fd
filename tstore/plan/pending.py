"""What a hub snapshot holds that the store does not: the files to scan, and those to carry over."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from tstore.catalog.schema import FILES, REJECTS, TENSORS
from tstore.hub.formats import FORMATS
from tstore.hub.reader import SourceFile
from tstore.hub.snapshot import HubFile, Reject, Snapshot
from tstore.plan.dedup import OCCURRENCES


@dataclass(frozen=True)
class Pending:
    """Work of a run.

    Attributes
    ----------
    occurrences : pyarrow.Table
        `OCCURRENCES` of the files to take in.
    sources : list of (SourceFile, str)
        Their distinct sources, in order of arrival, with a path that tells the format.
    carried_files, carried_tensors : pyarrow.Table
        Committed rows of unchanged files in revisions that changed: a run lists a revision whole.
    rejects : pyarrow.Table
        Rows for what the listing refused and no earlier run has reported.
    """

    occurrences: pa.Table
    sources: list[tuple[SourceFile, str]]
    carried_files: pa.Table
    carried_tensors: pa.Table
    rejects: pa.Table

    @property
    def empty(self) -> bool:
        """Whether the store already holds the snapshot."""
        rows = (self.occurrences, self.carried_files, self.rejects)
        return not any(table.num_rows for table in rows)


_Revision = tuple[str, str]


def find_pending(snapshot: Snapshot, connection: duckdb.DuckDBPyConnection) -> Pending:
    """Compare a snapshot with the committed runs, by path and source tag.

    Parameters
    ----------
    snapshot : Snapshot
        The hub as it is now.
    connection : DuckDBPyConnection
        `Catalog.connect`.
    """
    known = _known_files(connection)
    listed: dict[_Revision, list[HubFile]] = {}
    for file in snapshot.files:
        listed.setdefault((file.repo, file.revision), []).append(file)
    new: list[HubFile] = []
    carried: list[HubFile] = []
    for revision, files in listed.items():
        before, refs = known.get(revision, ({}, None))
        if before == {f.path: f.source.tag for f in files} and refs == snapshot.refs[revision]:
            continue
        for file in files:
            (carried if before.get(file.path) == file.source.tag else new).append(file)
    files_rows, tensor_rows = _carry(connection, carried, snapshot)
    return Pending(
        occurrences=_occurrences(new, snapshot),
        sources=_sources(new),
        carried_files=files_rows,
        carried_tensors=tensor_rows,
        rejects=_new_rejects(connection, snapshot.rejects),
    )


def _known_files(
    connection: duckdb.DuckDBPyConnection,
) -> dict[_Revision, tuple[dict[str, str], tuple[str, ...]]]:
    known: dict[_Revision, tuple[dict[str, str], tuple[str, ...]]] = {}
    rows = connection.sql("SELECT repo, revision, refs, path, source_tag FROM current_files")
    for repo, revision, refs, path, tag in rows.fetchall():
        known.setdefault((repo, revision), ({}, tuple(refs)))[0][path] = tag
    return known


def _occurrences(files: Iterable[HubFile], snapshot: Snapshot) -> pa.Table:
    rows = [
        {
            "ord": ord_,
            "repo": file.repo,
            "revision": file.revision,
            "refs": list(snapshot.refs[file.repo, file.revision]),
            "path": file.path,
            "nbytes": file.source.size,
            "source": file.source.source,
            "source_tag": file.source.tag,
        }
        for ord_, file in enumerate(files)
    ]
    return pa.Table.from_pylist(rows, OCCURRENCES)


def _sources(files: Iterable[HubFile]) -> list[tuple[SourceFile, str]]:
    """Each source once. A cache may name one file by several paths, of which one tells more."""
    paths: dict[SourceFile, str] = {}
    for file in files:
        told = any(form.matches(file.path) for form in FORMATS)
        if file.source not in paths or (
            told and not any(form.matches(paths[file.source]) for form in FORMATS)
        ):
            paths[file.source] = file.path
    return list(paths.items())


def _carry(
    connection: duckdb.DuckDBPyConnection, files: Iterable[HubFile], snapshot: Snapshot
) -> tuple[pa.Table, pa.Table]:
    """Committed rows of unchanged files, with the refs of now."""
    names = ("repo", "revision", "path", "refs")
    values = [(f.repo, f.revision, f.path, list(snapshot.refs[f.repo, f.revision])) for f in files]
    rows = [dict(zip(names, row, strict=True)) for row in values]
    keys = pa.Table.from_pylist(rows, pa.schema([FILES.field(name) for name in names]))
    connection.register("carried", keys)
    old_files = connection.sql(
        "SELECT f.repo, f.revision, c.refs, f.path, f.nbytes, f.sha256, f.source_tag, f.layout"
        " FROM current_files f JOIN carried c USING (repo, revision, path)"
    )
    old_tensors = connection.sql(
        "SELECT t.repo, t.revision, t.path, t.name, t.tensor_id, t.dtype, t.shape, t.start,"
        " t.nbytes FROM tensors t JOIN carried USING (repo, revision, path)"
        " JOIN current_files f ON t.repo = f.repo AND t.revision = f.revision"
        " AND t.path = f.path AND t.run = f.run"
    )
    return old_files.to_arrow_table().cast(FILES), old_tensors.to_arrow_table().cast(TENSORS)


def _new_rejects(connection: duckdb.DuckDBPyConnection, rejects: Iterable[Reject]) -> pa.Table:
    known = set(connection.sql("SELECT repo, revision, path, reason FROM rejects").fetchall())
    rows = [
        {
            "repo": reject.repo,
            "revision": reject.revision,
            "path": reject.path,
            "nbytes": reject.size,
            "reason": reject.reason,
            "message": reject.message,
            "stored": False,
        }
        for reject in rejects
        if (reject.repo, reject.revision, reject.path, reject.reason) not in known
    ]
    return pa.Table.from_pylist(rows, REJECTS)
