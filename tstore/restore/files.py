"""Rebuild files byte for byte; a file gets its name only after its SHA-256 was checked."""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tstore.catalog import Store
from tstore.catalog.blobs import BlobLocation
from tstore.errors import (
    BlobMissingError,
    DestinationConflictError,
    FileMismatchError,
    UnsafePathError,
)
from tstore.ids import check_relative_path
from tstore.restore.lookup import StoredFile, blobs_for, files_of, resolve_revision
from tstore.restore.reader import TensorReader
from tstore.settings import MIB


@dataclass
class RestoreReport:
    """What a restore did.

    Attributes
    ----------
    revision : str
        The revision that was restored.
    files, nbytes : int
        Files in the revision, and their size.
    files_kept : int
        Files that already were there with the right content.
    """

    revision: str
    files: int = 0
    nbytes: int = 0
    files_kept: int = 0


def restore_repo(
    store: Store,
    repo: str,
    destination: Path,
    *,
    revision: str | None = None,
    on_file: Callable[[StoredFile], None] = lambda file: None,
) -> RestoreReport:
    """Write the files of a revision below `destination`.

    Files that are there already with the right content are kept, so that an interrupted restore
    goes on where it stopped.

    Parameters
    ----------
    store : Store
    repo : str
        Repository id.
    destination : Path
        Directory; made if needed.
    revision : str, optional
        Revision or ref, ``main`` by default; ``<revision>@<run id>`` as it was after that run.
    on_file : callable
        Called after each file.

    Raises
    ------
    RepoNotFoundError, RevisionNotFoundError
        There is no such thing in the store.
    UnsafePathError
        A path would leave the destination.
    DestinationConflictError
        Another file lies there under the same name.
    FileMismatchError, BlobMissingError, BlobDamagedError
        The store is damaged; the file does not get its name.
    """
    found, files, reader = _look_up(store, repo, revision)
    for file in files:
        check_relative_path(file.path)
    report = RestoreReport(found)
    for file in files:
        try:
            kept = _restore_file(file, reader, destination)
        except BlobMissingError:  # moved since we looked, and its old pack removed?
            reader = TensorReader(store.objects, _look_up_blobs(store, files))
            kept = _restore_file(file, reader, destination)
        report.files += 1
        report.nbytes += file.nbytes
        report.files_kept += kept
        on_file(file)
    return report


def _look_up(
    store: Store, repo: str, revision: str | None
) -> tuple[str, list[StoredFile], TensorReader]:
    """The revision that is meant, its files, and what reads their tensors."""
    name, _, until = (revision or "").partition("@")
    catalog = store.catalog(until=until or None)
    catalog.check(("files", "blobs"))  # a damaged footer would hide rows without an error
    with catalog.connect() as connection:
        found = resolve_revision(connection, repo, name or None)
        files = files_of(connection, repo, found)
        blobs = blobs_for(connection, files)
    return found, files, TensorReader(store.objects, blobs)


def _look_up_blobs(store: Store, files: list[StoredFile]) -> dict[str, BlobLocation]:
    with store.catalog().connect() as connection:
        return blobs_for(connection, files)


def file_pieces(file: StoredFile, reader: TensorReader) -> Iterator[NDArray[np.uint8]]:
    """The bytes of a file, piece by piece.

    Raises
    ------
    FileMismatchError
        After the last piece, if the whole has another SHA-256 than the ingested file.
    """
    digest = hashlib.sha256()
    for data in reader.read_all(extent.tensor_id for extent in file.layout):
        digest.update(data)
        yield data
    if digest.hexdigest() != file.sha256:
        raise FileMismatchError(
            f"expected SHA-256 {file.sha256} of {file.repo}/{file.path}, found "
            f"{digest.hexdigest()}; run tstore verify --read-data",
            path=file.path,
        )


def _restore_file(file: StoredFile, reader: TensorReader, destination: Path) -> bool:
    """Write one file; True if it was there already."""
    path = _safe_path(destination, file.path)
    if path.is_symlink() or path.exists():
        if _same_content(path, file):
            return True
        raise DestinationConflictError(
            f"expected no file at {path}, found one with other content than "
            f"{file.repo}/{file.path}; remove it or choose another destination",
            path=str(path),
        )
    temp = path.parent / f".tstore-{uuid.uuid4().hex}"
    try:
        with temp.open("xb") as out:
            for piece in file_pieces(file, reader):
                out.write(piece)
            out.flush()
            os.fsync(out.fileno())
        temp.rename(path)
    finally:
        temp.unlink(missing_ok=True)
    return False


def _safe_path(destination: Path, relative: str) -> Path:
    """Path below the destination, its directories made, none of them reached through a link."""
    parts = check_relative_path(relative).parts
    folder = destination
    folder.mkdir(parents=True, exist_ok=True)
    for part in parts[:-1]:
        folder = folder / part
        if folder.is_symlink():
            raise UnsafePathError(
                f"expected directories inside {destination}, found the symbolic link {folder}; "
                "remove it or choose another destination",
                path=relative,
            )
        if folder.exists() and not folder.is_dir():
            raise DestinationConflictError(
                f"expected a directory at {folder}, found a file; "
                "remove it or choose another destination",
                path=relative,
            )
        folder.mkdir(exist_ok=True)
    return folder / parts[-1]


def _same_content(path: Path, file: StoredFile) -> bool:
    if path.is_symlink() or not path.is_file() or path.stat().st_size != file.nbytes:
        return False
    digest = hashlib.sha256()
    with path.open("rb") as data:
        while piece := data.read(MIB):
            digest.update(piece)
    return digest.hexdigest() == file.sha256
