"""An object store as a read-only file system of pyarrow.

pyarrow has an S3 client of its own, but it gives a read up when a body breaks off. Reads go through
`ObjectStore` instead: the same requests, patience, credentials and errors for everything.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa
from pyarrow import fs

from tstore.errors import ObjectNotFoundError
from tstore.settings import MIB

if TYPE_CHECKING:
    from tstore.objects.base import ObjectStore

_WHOLE_NBYTES = 8 * MIB
"""Up to this size an object is read at once: a request takes longer than what it brings."""


def arrow_filesystem(objects: ObjectStore) -> fs.FileSystem:
    """The keys of a store as paths."""
    return fs.PyFileSystem(_Handler(objects))


class _Handler(fs.FileSystemHandler):  # type: ignore[misc]
    """As much of a file system as reading needs."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Handler) and other._objects.uri == self._objects.uri

    def get_type_name(self) -> str:
        return "objects"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> list[fs.FileInfo]:
        return [self._info(path) for path in paths]

    def _info(self, path: str) -> fs.FileInfo:
        try:
            return fs.FileInfo(path, fs.FileType.File, size=self._objects.head(path).nbytes)
        except ObjectNotFoundError:
            below = next(self._objects.list(f"{path}/"), None)
            return fs.FileInfo(
                path, fs.FileType.NotFound if below is None else fs.FileType.Directory
            )

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        folder = f"{selector.base_dir}/" if selector.base_dir else ""
        return [
            fs.FileInfo(info.key, fs.FileType.File, size=info.nbytes)
            for info in self._objects.list(folder)
        ]

    def open_input_file(self, path: str) -> pa.NativeFile:
        try:
            nbytes = self._objects.head(path).nbytes
            if nbytes <= _WHOLE_NBYTES:
                return pa.BufferReader(self._objects.get(path))
        except ObjectNotFoundError as error:
            raise FileNotFoundError(path) from error
        return pa.PythonFile(_ObjectFile(self._objects, path, nbytes), mode="r")

    open_input_stream = open_input_file

    def _read_only(self, *arguments: Any) -> NoReturn:
        raise NotImplementedError("objects are written by put")

    copy_file = create_dir = delete_dir = delete_dir_contents = delete_file = _read_only
    delete_root_dir_contents = move = open_append_stream = open_output_stream = _read_only


class _ObjectFile(io.RawIOBase):
    """A large object, read by ranges."""

    def __init__(self, objects: ObjectStore, key: str, nbytes: int) -> None:
        self._objects, self._key, self._nbytes = objects, key, nbytes
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._nbytes}[whence]
        self._position = start + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        stop = self._nbytes if size < 0 else min(self._position + size, self._nbytes)
        data = self._objects.get_range(self._key, self._position, stop)
        self._position = stop
        return data
