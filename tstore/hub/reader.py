"""Read byte ranges of one source file, wherever it lies."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from tstore.hub.local_reader import LocalReader, stat_source
from tstore.hub.s3_reader import S3Reader
from tstore.hub.source import SourceFile, SourceReader
from tstore.objects.ahead import is_remote

__all__ = ["SourceFile", "SourceReader", "open_source", "stat_source"]


def open_source(file: SourceFile) -> AbstractContextManager[SourceReader]:
    """A reader of exactly this version of the file, for a ``with`` block.

    Raises
    ------
    SourceChangedError, SourceUnreadableError
        On entering the block or later: see `SourceReader`.
    """
    if is_remote(file.source):
        return nullcontext(S3Reader(file))
    return LocalReader(file)
