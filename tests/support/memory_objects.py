"""An object store in the memory of this process, with exact semantics."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from unittest import mock

from pyarrow import fs

from tstore.errors import (
    InvalidKeyError,
    ObjectExistsError,
    ObjectNotFoundError,
    PreconditionFailedError,
    RangeError,
    UnsafePathError,
)
from tstore.ids import Buffer, check_relative_path
from tstore.objects import ObjectInfo
from tstore.objects.arrow import arrow_filesystem
from tstore.objects.location import OPENERS


class MemoryObjects:
    """See `tstore.objects.base.ObjectStore`."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._objects: dict[str, tuple[bytes, str]] = {}
        self._lock = threading.RLock()

    def get(self, key: str) -> bytes:
        return self.get_versioned(key)[0]

    def get_versioned(self, key: str) -> tuple[bytes, str]:
        _check(key)
        with self._lock:
            if key not in self._objects:
                raise ObjectNotFoundError(f"expected an object at {key}, found none", key=key)
            return self._objects[key]

    def get_range(self, key: str, start: int, stop: int) -> bytes:
        data = self.get(key)
        if not 0 <= start <= stop <= len(data):
            raise RangeError(
                f"expected a range inside the {len(data)} bytes of {key}, found [{start}, {stop})",
                key=key,
            )
        return data[start:stop]

    def put(self, key: str, parts: Iterable[Buffer]) -> None:
        _check(key)
        self._write(key, _join(parts))

    def put_new(self, key: str, parts: Iterable[Buffer]) -> None:
        _check(key)
        data = _join(parts)
        with self._lock:
            if key in self._objects:
                raise ObjectExistsError(f"expected no object at {key}, found one", key=key)
            self._write(key, data)

    def put_if_match(self, key: str, parts: Iterable[Buffer], version: str) -> str:
        _check(key)
        data = _join(parts)
        with self._lock:
            found = self.get_versioned(key)[1]
            if found != version:
                raise PreconditionFailedError(
                    f"expected version {version} of {key}, found {found}; read it again", key=key
                )
            return self._write(key, data)

    def _write(self, key: str, data: bytes) -> str:
        version = uuid.uuid4().hex
        with self._lock:
            self._objects[key] = data, version
        return version

    def head(self, key: str) -> ObjectInfo:
        data, version = self.get_versioned(key)
        return ObjectInfo(key, len(data), version)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        with self._lock:
            found = sorted(self._objects.items())
        for key, (data, version) in found:
            if key.startswith(prefix):
                yield ObjectInfo(key, len(data), version)

    def delete(self, key: str) -> None:
        _check(key)
        with self._lock:
            self._objects.pop(key, None)

    def remove_abandoned(self, older_than_s: float) -> None:
        """A writer that dies takes this memory along."""

    def probe(self) -> None:
        """The lock sees to it."""

    def filesystem(self) -> fs.FileSystem:
        return arrow_filesystem(self)


@contextmanager
def memory_stores() -> Iterator[None]:
    """Inside the block, `open_objects` knows ``memory://name``; the stores go with it."""
    stores: dict[str, MemoryObjects] = {}

    def open_it(uri: str) -> MemoryObjects:
        return stores.setdefault(uri, MemoryObjects(uri))

    with mock.patch.dict(OPENERS, memory=open_it):
        yield


def _check(key: str) -> None:
    try:
        check_relative_path(key)
    except UnsafePathError as error:
        raise InvalidKeyError(f"expected a relative key, found {key!r}", key=key) from error


def _join(parts: Iterable[Buffer]) -> bytes:
    return b"".join(bytes(part) for part in parts)
