"""Check a store: is everything there (fast), and does it decode to what was ingested (slow)?"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby

import duckdb

from tstore.catalog import Catalog, Store, keys
from tstore.catalog.blobs import BlobLocation
from tstore.catalog.schema import TABLES
from tstore.errors import ObjectNotFoundError, TStoreError
from tstore.objects import ObjectStore
from tstore.restore.files import file_pieces
from tstore.restore.lookup import StoredFile, blobs_for, files_of
from tstore.restore.reader import TensorReader
from tstore.settings import MIB

_PIECE_NBYTES = 64 * MIB
_NEEDED_TABLES = ("files", "blobs")
"""What restoring reads."""


@dataclass
class VerifyReport:
    """What a verification looked at and found.

    Attributes
    ----------
    runs, files, blobs, packs : int
        How many were checked.
    problems : list of str
        One line each; empty for a sound store.
    """

    runs: int = 0
    files: int = 0
    blobs: int = 0
    packs: int = 0
    problems: list[str] = field(default_factory=list)


def verify(
    store: Store, *, read_data: bool = False, on_file: Callable[[StoredFile], None] = lambda f: None
) -> VerifyReport:
    """Check every committed run.

    Always: parts of the catalog and packs are there with their sizes, the tables that restoring
    needs have their SHA-256, blobs lie inside their packs, every extent of every file has a blob, bases
    are stored standalone, and the extents of a file add up to its size. With `read_data` also:
    the other tables have their SHA-256, each pack has the SHA-256 that is its name, and every file is
    decoded and compared with the SHA-256 of the ingested one.
    """
    report = VerifyReport()
    catalog = store.catalog()
    report.runs = len(catalog.runs)
    damaged = list(damaged_parts(catalog, TABLES if read_data else _NEEDED_TABLES))
    report.problems += damaged
    if damaged:  # the tables cannot be read
        return report
    with catalog.connect() as connection:
        files = files_of(connection)
        report.files = len(files)
        report.problems += _blob_problems(connection)
        report.problems += _pack_problems(store.objects, connection, report, read_data)
        broken = _broken_files(connection)
        report.problems += broken.values()
        if read_data:
            sound = (file for file in files if _name(file) not in broken)
            for _, revision in groupby(sound, lambda file: (file.repo, file.revision)):
                some = list(revision)
                try:
                    blobs = blobs_for(connection, some)
                except TStoreError as error:
                    report.problems.append(f"{some[0].repo}@{some[0].revision}: {error}")
                else:
                    report.problems += unreadable_files(store.objects, blobs, some, on_file)
    return report


def sound_files(connection: duckdb.DuckDBPyConnection) -> list[StoredFile]:
    """Current files that, as far as the catalog tells, can be restored."""
    broken = _broken_files(connection)
    return [file for file in files_of(connection) if _name(file) not in broken]


def damaged_parts(catalog: Catalog, read: Collection[str]) -> Iterator[str]:
    """Parts of the catalog that are gone or cut short; of the tables to `read`, with other bytes."""
    for table in TABLES:
        for part in catalog.parts(table):
            if table in read:
                if (problem := part.problem(catalog.objects)) is not None:
                    yield problem
            elif (size := _size(catalog.objects, part.key)) != part.nbytes:
                yield f"{part.key}: expected {part.nbytes} bytes, found {_told(size)}"


def _blob_problems(connection: duckdb.DuckDBPyConnection) -> Iterator[str]:
    deep = connection.sql(
        "SELECT d.tensor_id, d.base_id FROM current_blobs d"
        " LEFT JOIN current_blobs b ON b.tensor_id = d.base_id"
        " WHERE d.base_id IS NOT NULL AND (b.tensor_id IS NULL OR b.base_id IS NOT NULL)"
    ).fetchall()
    for tensor_id, base_id in deep:
        yield f"{tensor_id}: expected its base {base_id} to be stored standalone, found it is not"


def _pack_problems(
    objects: ObjectStore,
    connection: duckdb.DuckDBPyConnection,
    report: VerifyReport,
    read_data: bool,
) -> Iterator[str]:
    rows = connection.sql(
        'SELECT pack, count(*), max("offset" + nbytes) FROM current_blobs GROUP BY pack ORDER BY 1'
    ).fetchall()
    sizes = {pack: _size(objects, keys.pack(pack)) for pack, _, _ in rows}
    given_up = _given_up(objects) if None in sizes.values() else frozenset()
    for pack, blobs, end in rows:
        report.packs += 1
        report.blobs += blobs
        size = sizes[pack]
        if pack in given_up:
            continue
        if size is None or size < end:
            yield f"pack {pack}: expected at least {end} bytes, found {_told(size)}"
        elif read_data and (problem := damaged_pack(objects, pack, size)) is not None:
            yield problem


def damaged_pack(objects: ObjectStore, pack: str, nbytes: int) -> str | None:
    """What is wrong with the bytes of a pack of this size, in one line."""
    try:
        found = _sha256(objects, keys.pack(pack), nbytes)
    except ObjectNotFoundError:
        if pack in _given_up(objects):
            return None
        return f"pack {pack}: expected {nbytes} bytes, found no object"
    return (
        None if found == pack else f"pack {pack}: expected the SHA-256 in its name, found {found}"
    )


def _given_up(objects: ObjectStore) -> frozenset[str]:
    """Packs that gc has given up by now: a verification takes hours and knows the catalog from before."""
    with Catalog(objects).connect() as connection:
        packs = connection.sql("SELECT pack FROM dropped_packs").fetchall()
    return frozenset(pack for (pack,) in packs)


_EXTENT_SUMS = """
SELECT f.repo, f.revision, f.path, f.nbytes, coalesce(sum(x.nbytes), 0) AS total,
       min(CASE WHEN x IS NOT NULL AND b.raw_nbytes IS DISTINCT FROM x.nbytes
           THEN x.tensor_id END) AS without_blob
FROM current_files f LEFT JOIN unnest(f.layout) AS t(x) ON true
LEFT JOIN current_blobs b ON b.tensor_id = x.tensor_id
GROUP BY ALL ORDER BY ALL
"""


def _broken_files(connection: duckdb.DuckDBPyConnection) -> dict[str, str]:
    """Files that the catalog alone shows to be broken, with what is wrong."""
    broken = {}
    for repo, revision, path, nbytes, total, without_blob in connection.sql(
        _EXTENT_SUMS
    ).fetchall():
        name = f"{repo}@{revision}/{path}"
        if total != nbytes:
            broken[name] = f"{name}: expected extents of {nbytes} bytes, found {total}"
        elif without_blob is not None:
            broken[name] = f"{name}: expected a blob of that size for {without_blob}, found none"
    return broken


def unreadable_files(
    objects: ObjectStore,
    blobs: Mapping[str, BlobLocation],
    files: Iterable[StoredFile],
    on_file: Callable[[StoredFile], None] = lambda f: None,
) -> Iterator[str]:
    """Decode files; what is wrong with those that do not come back as they were.

    Parameters
    ----------
    objects : ObjectStore
        The store.
    blobs : mapping of str to BlobLocation
        All that the files need, by tensor id.
    files : iterable of StoredFile
    on_file : callable
        Called after each file.
    """
    reader = TensorReader(objects, blobs)
    for file in files:
        try:
            for _ in file_pieces(file, reader):
                pass
        except TStoreError as error:
            yield f"{_name(file)}: {error}"
        on_file(file)


def _name(file: StoredFile) -> str:
    return f"{file.repo}@{file.revision}/{file.path}"


def _size(objects: ObjectStore, key: str) -> int | None:
    try:
        return objects.head(key).nbytes
    except ObjectNotFoundError:
        return None


def _told(size: int | None) -> str:
    return "no object" if size is None else f"{size} bytes"


def _sha256(objects: ObjectStore, key: str, nbytes: int) -> str:
    digest = hashlib.sha256()
    for start in range(0, nbytes, _PIECE_NBYTES):
        digest.update(objects.get_range(key, start, min(start + _PIECE_NBYTES, nbytes)))
    return digest.hexdigest()
