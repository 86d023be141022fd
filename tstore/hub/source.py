"""One version of one file of a hub, and what a reader of it can do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tstore.errors import RangeError


@dataclass(frozen=True)
class SourceFile:
    """One version of one file.

    Attributes
    ----------
    source : str
        Absolute path without symbolic links (two names of one file share it), or
        ``s3://bucket/key``.
    size : int
        Bytes.
    tag : str
        ``size:mtime_ns:ctime_ns:inode``, or ``size:ETag`` of an object; it differs once the file
        was written or replaced.
    """

    source: str
    size: int
    tag: str


class SourceReader(Protocol):
    """An open file of which only the expected version is read."""

    @property
    def file(self) -> SourceFile:
        """The version that is expected."""

    def read(self, start: int, stop: int) -> NDArray[np.uint8]:
        """Bytes [`start`, `stop`), maybe read-only.

        Raises
        ------
        RangeError
            The range is not inside the file.
        SourceChangedError
            There is another version now.
        SourceUnreadableError
            The file is gone, may not be read, or the disk fails.
        ObjectStoreUnavailableError
            The object store does not answer, which says nothing of the file.
        """

    def check_unchanged(self) -> None:
        """Check that all that was read, if only nothing, belongs to the expected version.

        Raises
        ------
        SourceChangedError, SourceUnreadableError, ObjectStoreUnavailableError
            As in `read`.
        """


def check_range(file: SourceFile, start: int, stop: int) -> None:
    """`RangeError` unless [`start`, `stop`) lies inside the file."""
    if not 0 <= start <= stop <= file.size:
        raise RangeError(
            f"expected a range inside [0, {file.size}) of {file.source!r}, found [{start}, {stop})"
        )
