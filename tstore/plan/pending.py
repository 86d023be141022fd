"""What a hub snapshot holds that the store does not: the files to scan, and those to carry over."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

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
        Rows for what the listing refused.
    new_rejects : pyarrow.Table
        Those of them that no earlier run has recorded.
    refs_moved : bool
        Whether a ref points to another known revision than before.
    """

    occurrences: pa.Table
    sources: list[tuple[SourceFile, str]]
    carried_files: pa.Table
    carried_tensors: pa.Table
    rejects: pa.Table
    new_rejects: pa.Table
    refs_moved: bool

    @property
    def empty(self) -> bool:
        """Whether the store already holds the snapshot."""
        rows = (self.occurrences, self.carried_files, self.new_rejects)
        return not any(table.num_rows for table in rows)


_Revision = tuple[str, str]
_Ref = tuple[str, str]
_Place = tuple[str, str, str, tuple[str, ...]]
"""Repository, revision, path, refs."""


def find_pending(snapshot: Snapshot, connection: duckdb.DuckDBPyConnection) -> Pending:
    """Compare a snapshot with the committed runs, by path and source tag.

    Known files that the snapshot says nothing of, because of a pattern or because they cannot be
    read now, stay in their revision as they were.

    Parameters
    ----------
    snapshot : Snapshot
        The hub as it is now.
    connection : DuckDBPyConnection
        `Catalog.connect`.
    """
    known, targets = _known_files(connection)
    told = _known_rejects(connection)
    listed: dict[_Revision, list[HubFile]] = {}
    for file in snapshot.files:
        listed.setdefault((file.repo, file.revision), []).append(file)
    new: list[HubFile] = []
    carried: list[_Place] = []
    refs_moved = False
    for revision, files in listed.items():
        before, old_refs = known.get(revision, ({}, None))
        now = {file.path: file.source.tag for file in files}
        unseen = [p for p in before if p not in now and snapshot.says_nothing_of(*revision, p)]
        refs = snapshot.refs[revision]
        same_refs = old_refs == refs and all(targets[revision[0], ref] == revision for ref in refs)
        refs_moved |= not same_refs
        if same_refs and before == now | {path: before[path] for path in unseen}:
            continue
        new += [file for file in files if before.get(file.path) != file.source.tag]
        kept = [*unseen, *(path for path, tag in now.items() if before.get(path) == tag)]
        carried += [(*revision, path, refs) for path in kept]
    files_rows, tensor_rows = _carry(connection, carried)
    return Pending(
        occurrences=_occurrences(new, snapshot),
        sources=_sources(new),
        carried_files=files_rows,
        carried_tensors=tensor_rows,
        rejects=_reject_rows(snapshot.rejects),
        new_rejects=_reject_rows(
            r for r in snapshot.rejects if (r.repo, r.revision, r.path, r.reason) not in told
        ),
        refs_moved=refs_moved,
    )


def carry_rejected(
    connection: duckdb.DuckDBPyConnection, pending: Pending, rejects: pa.Table
) -> Pending:
    """`pending`, also carrying the committed state of files that could not be stored now.

    Parameters
    ----------
    connection : DuckDBPyConnection
        `Catalog.connect`.
    pending : Pending
    rejects : pyarrow.Table
        Rows of the table ``rejects`` of this run.
    """
    places: list[_Place] = []
    bad = {(r["repo"], r["revision"], r["path"]) for r in rejects.to_pylist() if not r["stored"]}
    for row in pending.occurrences.to_pylist():
        if (row["repo"], row["revision"], row["path"]) in bad:
            places.append((row["repo"], row["revision"], row["path"], tuple(row["refs"])))
    files, tensors = _carry(connection, places)
    return replace(
        pending,
        carried_files=pa.concat_tables([pending.carried_files, files]),
        carried_tensors=pa.concat_tables([pending.carried_tensors, tensors]),
    )


_CHANGED = """
WITH run AS (SELECT repo, revision, path, refs, sha256, source_tag FROM run_files),
known AS (
    SELECT repo, revision, path, refs, sha256, source_tag FROM current_files
    WHERE (repo, revision) IN (SELECT (repo, revision) FROM run_files)
)
SELECT count(*) FROM ((FROM run EXCEPT FROM known) UNION ALL (FROM known EXCEPT FROM run))
"""


def changes_nothing(connection: duckdb.DuckDBPyConnection, rejects: pa.Table) -> bool:
    """Whether a run of the files in the view ``run_files`` would repeat what is committed.

    So it is when all that was pending was rejected again, for the same reasons as before.
    """
    ((changed,),) = connection.sql(_CHANGED).fetchall()
    told = {(r["repo"], r["revision"], r["path"], r["reason"]) for r in rejects.to_pylist()}
    return changed == 0 and told <= _known_rejects(connection)


def _known_rejects(connection: duckdb.DuckDBPyConnection) -> set[tuple[str, str, str, str]]:
    return set(connection.sql("SELECT repo, revision, path, reason FROM rejects").fetchall())


def _known_files(
    connection: duckdb.DuckDBPyConnection,
) -> tuple[dict[_Revision, tuple[dict[str, str], tuple[str, ...]]], dict[_Ref, _Revision]]:
    """Tags and refs of the files of each revision, and where each ref points now."""
    known: dict[_Revision, tuple[dict[str, str], tuple[str, ...]]] = {}
    targets: dict[_Ref, _Revision] = {}
    # A file that can no longer be restored has no tag, so that the hub's is new: taking it in again
    # heals it. One that the snapshot says nothing of stays, for a backup to heal.
    rows = connection.sql(
        """
        WITH lost AS (
            SELECT DISTINCT repo, revision, path FROM current_files f, unnest(f.layout) AS t(x)
            WHERE x.tensor_id NOT IN (SELECT tensor_id FROM usable_blobs)
        )
        SELECT repo, revision, refs, path, CASE WHEN lost.path IS NULL THEN source_tag ELSE '' END
        FROM current_files LEFT JOIN lost USING (repo, revision, path) ORDER BY run
        """
    )
    for repo, revision, refs, path, tag in rows.fetchall():
        known.setdefault((repo, revision), ({}, tuple(refs)))[0][path] = tag
        targets.update({(repo, ref): (repo, revision) for ref in refs})  # the newest run wins
    return known, targets


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
    connection: duckdb.DuckDBPyConnection, places: Iterable[_Place]
) -> tuple[pa.Table, pa.Table]:
    """Committed rows of files, with the refs of now; files that are not known are left out."""
    names = ("repo", "revision", "path", "refs")
    rows = [dict(zip(names, place, strict=True)) for place in places]
    keys = pa.Table.from_pylist(rows, pa.schema([FILES.field(name) for name in names]))
    connection.register("carried", keys)
    old_files = connection.sql(
        "SELECT f.repo, f.revision, c.refs, f.path, f.nbytes, f.sha256, f.source_tag, f.layout"
        " FROM current_files f JOIN carried c USING (repo, revision, path)"
    )
    old_tensors = connection.sql(
        "SELECT t.repo, t.revision, t.path, t.name, t.part, t.tensor_id, t.dtype, t.shape, t.start,"
        " t.nbytes FROM tensors t JOIN carried USING (repo, revision, path)"
        " JOIN current_files f ON t.repo = f.repo AND t.revision = f.revision"
        " AND t.path = f.path AND t.run = f.run"
    )
    return old_files.to_arrow_table().cast(FILES), old_tensors.to_arrow_table().cast(TENSORS)


def _reject_rows(rejects: Iterable[Reject]) -> pa.Table:
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
    ]
    return pa.Table.from_pylist(rows, REJECTS)
