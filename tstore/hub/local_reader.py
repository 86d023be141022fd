"""Read byte ranges of a local file, and notice when it changes meanwhile."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from tstore.errors import NotRegularFileError, SourceChangedError, SourceUnreadableError
from tstore.hub.source import SourceFile, check_range


def stat_source(path: str | os.PathLike[str]) -> SourceFile:
    """The file behind `path`, symbolic links followed.

    Raises
    ------
    SourceUnreadableError
        The operating system refuses, or nothing is there.
    NotRegularFileError
        It is a directory, pipe, socket or device.
    """
    source = os.path.realpath(path)
    with _os_errors(source):
        status = os.stat(source)
    if not stat.S_ISREG(status.st_mode):
        raise NotRegularFileError(
            f"expected a regular file at {source!r}, found mode {stat.filemode(status.st_mode)}; "
            "remove or exclude it",
            source=source,
        )
    return SourceFile(source, status.st_size, _tag(status))


class LocalReader:
    """Reads ranges of `file`; a context manager.

    Parameters
    ----------
    file : SourceFile
        The version that is expected. Opening checks it, `check_unchanged` checks it again.

    Raises
    ------
    SourceChangedError
        The file is another version than the expected one.
    SourceUnreadableError
        The operating system refuses to open or read it.
    """

    def __init__(self, file: SourceFile) -> None:
        self.file = file
        self._fd = -1

    def __enter__(self) -> Self:
        with _os_errors(self.file.source):
            # O_NONBLOCK: a pipe put in the file's place must not hang us.
            self._fd = os.open(self.file.source, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            self.check_unchanged()
        except BaseException:
            os.close(self._fd)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        os.close(self._fd)

    def read(self, start: int, stop: int) -> NDArray[np.uint8]:
        """Bytes [`start`, `stop`) in a fresh buffer.

        Raises
        ------
        RangeError
            The range is not inside the file.
        SourceChangedError
            The file ended before `stop`.
        SourceUnreadableError
            The read failed.
        """
        check_range(self.file, start, stop)
        data = np.empty(stop - start, dtype=np.uint8)
        view = data.data
        done = 0
        while done < len(view):
            with _os_errors(self.file.source):
                n_read = os.preadv(self._fd, [view[done:]], start + done)
            if n_read == 0:
                raise SourceChangedError(
                    f"expected {self.file.size} bytes in {self.file.source!r}, found its end at "
                    f"{start + done}; ingest again once nobody writes to it"
                )
            done += n_read
        return data

    def check_unchanged(self) -> None:
        """Compare the open file, and the file now at its path, with the expected version.

        Raises
        ------
        SourceChangedError
            Either differs.
        SourceUnreadableError
            Nothing is at the path any more, or the operating system refuses.
        """
        with _os_errors(self.file.source):
            tags = (_tag(os.fstat(self._fd)), _tag(os.stat(self.file.source)))
        for found in tags:
            if found != self.file.tag:
                raise SourceChangedError(
                    f"expected {self.file.source!r} with size:mtime:ctime:inode {self.file.tag}, "
                    f"found {found}; ingest again once nobody writes to it"
                )


def _tag(status: os.stat_result) -> str:
    return f"{status.st_size}:{status.st_mtime_ns}:{status.st_ctime_ns}:{status.st_ino}"


@contextmanager
def _os_errors(source: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SourceUnreadableError(
            f"expected to read {source!r}, found {error.strerror or error}; "
            "check its permissions and the disk",
            source=source,
        ) from error
