"""Object store on a local directory: temp file, fsync, then link or rename into place."""

from __future__ import annotations

import errno
import fcntl
import os
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pyarrow import fs

from tstore.errors import (
    InvalidKeyError,
    ObjectExistsError,
    ObjectNotFoundError,
    PreconditionFailedError,
    RangeError,
    StoreNotWritableError,
    UnsafePathError,
)
from tstore.ids import Buffer, check_relative_path, content_hash
from tstore.objects.base import ObjectInfo

_TEMP_FOLDER = ".tmp"
_LOCK_PREFIX = ".lock-"
_NOT_WRITABLE = {
    errno.ENOSPC: "free space",
    errno.EDQUOT: "free space or raise the quota",
    errno.EFBIG: "raise the limit of file sizes",
    errno.EROFS: "mount the file system for writing",
    errno.EACCES: "allow this user to write there",
    errno.EPERM: "allow this user to write there",
    errno.EIO: "check the disk",
}
"""What the operating system says when it does not write, and what to do about it."""


class LocalObjects:
    """Objects as files below `root`; see `tstore.objects.base.ObjectStore`.

    Parameters
    ----------
    root : str
        Directory; made when the first object is written.
    """

    def __init__(self, root: str) -> None:
        self._root = Path(root).absolute()

    @property
    def uri(self) -> str:
        return str(self._root)

    @contextmanager
    def _temp_file(self, path: Path, parts: Iterable[Buffer]) -> Iterator[Path]:
        """A synced file holding the parts, on the file system of `path`; gone afterwards."""
        temp = self._root / _TEMP_FOLDER / uuid.uuid4().hex
        with _writable(path):
            temp.parent.mkdir(parents=True, exist_ok=True)
        try:
            _write(temp, path, parts)
            with _writable(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                yield temp
        finally:
            temp.unlink(missing_ok=True)
        with _writable(path):
            _sync_directory(path.parent)

    def _path(self, key: str) -> Path:
        try:
            return self._root / check_relative_path(key)
        except UnsafePathError as error:
            raise InvalidKeyError(f"expected a relative key, found {key!r}", key=key) from error

    def get(self, key: str) -> bytes:
        with _missing_is_not_found(key):
            return self._path(key).read_bytes()

    def get_versioned(self, key: str) -> tuple[bytes, str]:
        data = self.get(key)
        return data, content_hash(data)

    def get_range(self, key: str, start: int, stop: int) -> bytes:
        with _missing_is_not_found(key), self._path(key).open("rb") as file:
            nbytes = os.fstat(file.fileno()).st_size
            if not 0 <= start <= stop <= nbytes:
                raise RangeError(
                    f"expected a range inside the {nbytes} bytes of {key}, "
                    f"found [{start}, {stop}); the object may be truncated",
                    key=key,
                )
            pieces = list(_pieces(file.fileno(), start, stop))
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def put(self, key: str, parts: Iterable[Buffer]) -> None:
        path = self._path(key)
        with self._temp_file(path, parts) as temp:
            temp.replace(path)

    def put_new(self, key: str, parts: Iterable[Buffer]) -> None:
        path = self._path(key)
        if path.exists():  # spares the write; the link below decides
            raise _taken(key)
        with self._temp_file(path, parts) as temp:
            try:
                os.link(temp, path)
            except FileExistsError as error:
                raise _taken(key) from error

    def put_if_match(self, key: str, parts: Iterable[Buffer], version: str) -> str:
        path = self._path(key)
        with _missing_is_not_found(key), _locked(path):
            found = content_hash(path.read_bytes())
            if found != version:
                raise PreconditionFailedError(
                    f"expected version {version} of {key}, found {found}; read it again", key=key
                )
            with self._temp_file(path, parts) as temp:
                new_version = content_hash(temp.read_bytes())
                temp.replace(path)
            return new_version

    def head(self, key: str) -> ObjectInfo:
        path = self._path(key)
        with _missing_is_not_found(key):
            if path.is_dir():
                raise IsADirectoryError(path)
            return ObjectInfo(key, path.stat().st_size)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        folder, _, _ = prefix.rpartition("/")
        try:
            top = self._path(folder) if folder else self._root
        except InvalidKeyError:  # no key starts like this
            return
        found = []
        for parent, folders, names in os.walk(top):
            if Path(parent) == self._root and _TEMP_FOLDER in folders:
                folders.remove(_TEMP_FOLDER)
            for name in names:
                if name.startswith(_LOCK_PREFIX):
                    continue
                path = Path(parent, name)
                key = path.relative_to(self._root).as_posix()
                if key.startswith(prefix):
                    found.append((key, path))
        for key, path in sorted(found):
            try:
                nbytes = path.stat().st_size
            except FileNotFoundError:  # deleted since the walk
                continue
            yield ObjectInfo(key, nbytes)

    def delete(self, key: str) -> None:
        path = self._path(key)
        with _writable(path), suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
            path.unlink()
            self._prune(path.parent)

    def _prune(self, folder: Path) -> None:
        """Remove directories that a deletion left empty."""
        while folder != self._root and self._root in folder.parents:
            try:
                folder.rmdir()
            except OSError:  # not empty, or another process was faster
                return
            folder = folder.parent

    def remove_abandoned(self, older_than_s: float) -> None:
        for temp in (self._root / _TEMP_FOLDER).glob("*"):
            with suppress(FileNotFoundError):  # its writer lives and just finished
                if time.time() - temp.stat().st_mtime > older_than_s:
                    with _writable(temp):
                        temp.unlink()

    def probe(self) -> None:
        """Links and locks of a file system are atomic."""

    def filesystem(self) -> fs.FileSystem:
        return fs.SubTreeFileSystem(str(self._root), fs.LocalFileSystem())


def _taken(key: str) -> ObjectExistsError:
    return ObjectExistsError(f"expected no object at {key}, found one", key=key)


def _pieces(fd: int, start: int, stop: int) -> Iterator[bytes]:
    while start < stop:  # one call reads at most 2 GiB on Linux
        piece = os.pread(fd, min(stop - start, 1 << 30), start)
        if not piece:
            raise OSError(errno.EIO, "file shrank while it was read")
        start += len(piece)
        yield piece


@contextmanager
def _missing_is_not_found(key: str) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        raise ObjectNotFoundError(f"expected an object at {key}, found none", key=key) from error


def _write(temp: Path, path: Path, parts: Iterable[Buffer]) -> None:
    """Make the file `temp` with these bytes, on disk for good; messages name `path`."""
    with _writable(path):
        file = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        for part in parts:  # what goes wrong in here is not the fault of the store
            rest = memoryview(part)
            while rest.nbytes:
                with _writable(path):
                    rest = rest.cast("B")[os.write(file, rest) :]
        with _writable(path):
            os.fsync(file)
    finally:
        os.close(file)


@contextmanager
def _writable(path: Path) -> Iterator[None]:
    """What the disk refuses inside the block is the store's fault, and told as such."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NOT_WRITABLE:
            raise
        raise StoreNotWritableError(
            f"expected to write {path}, found: {error.strerror}; "
            f"{_NOT_WRITABLE[error.errno]} and run the same command again",
            path=str(path),
        ) from error


def _sync_directory(path: Path) -> None:
    """A new name is durable only once its directory is."""
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Serialise compare-and-swap between processes; the kernel frees it when one dies."""
    name = path.parent / f"{_LOCK_PREFIX}{path.name}"
    with _writable(path):
        lock = os.open(name, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
