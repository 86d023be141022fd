"""What every object store must do; the conformance suite in ``tests/objects`` holds it to this."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from pyarrow import fs

from tstore.ids import Buffer

PROBE_PREFIX = ".probe-"
"""Keys of objects that `ObjectStore.probe` makes for a moment."""


@dataclass(frozen=True)
class ObjectInfo:
    """What a listing knows of one object.

    Attributes
    ----------
    key : str
        Key relative to the root of the store.
    nbytes : int
        Size in bytes.
    version : str
        As `ObjectStore.get_versioned` gives it, where a listing tells; else empty.
    """

    key: str
    nbytes: int
    version: str = ""


class ObjectStore(Protocol):
    """A flat namespace of keys. Objects appear whole or not at all.

    Missing keys raise `ObjectNotFoundError`. Keys are relative POSIX paths.
    """

    @property
    def uri(self) -> str:
        """Location, as given to `open_objects`; a worker opens the same store with it."""

    def get(self, key: str) -> bytes:
        """The whole object."""

    def get_versioned(self, key: str) -> tuple[bytes, str]:
        """The whole object and its version, which `put_if_match` takes."""

    def get_range(self, key: str, start: int, stop: int) -> bytes:
        """Bytes ``[start, stop)``; `RangeError` if the object does not have all of them."""

    def put(self, key: str, parts: Iterable[Buffer]) -> None:
        """Write or replace, atomically and durably."""

    def put_new(self, key: str, parts: Iterable[Buffer]) -> None:
        """Create only: `ObjectExistsError` if the key is taken, by whomever came first."""

    def put_if_match(self, key: str, parts: Iterable[Buffer], version: str) -> str:
        """Replace only this version, else `PreconditionFailedError`; gives the new version.

        When an answer was lost on the network, the error may also mean that ours was written and
        another writer has replaced it since: read again before doing it again.
        """

    def head(self, key: str) -> ObjectInfo:
        """Its size, without reading it."""

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Objects whose key starts with `prefix`, sorted by key."""

    def delete(self, key: str) -> None:
        """Remove; a missing key is fine, so that a retry is."""

    def remove_abandoned(self, older_than_s: float) -> None:
        """Remove what writers that died left behind, unless it is younger than this."""

    def probe(self) -> None:
        """`ConditionalPutUnsupportedError` where `put_new` and `put_if_match` are not atomic."""

    def filesystem(self) -> fs.FileSystem:
        """The same namespace for pyarrow's Parquet reader."""
