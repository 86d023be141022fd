"""Read byte ranges of one version of an S3 object."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tstore.errors import (
    AccessDeniedError,
    ObjectNotFoundError,
    PreconditionFailedError,
    RangeError,
    SourceChangedError,
    SourceUnreadableError,
)
from tstore.hub.source import SourceFile, check_range
from tstore.settings import KIB

READ_AHEAD_NBYTES = 256 * KIB
"""A read at the start of an object fetches this much: a small file, or the length and mostly the
header of a safetensors file, costs one request."""


class S3Reader:
    """Reads ranges of `file`, each by its ETag; see `tstore.hub.source.SourceReader`.

    Parameters
    ----------
    file : SourceFile
        The version that is expected. No request is made before the first read.
    """

    def __init__(self, file: SourceFile) -> None:
        from tstore.objects.s3 import S3Objects  # boto3 takes half a second to import

        bucket, _, self._key = file.source.removeprefix("s3://").partition("/")
        self.file = file
        self._version = file.tag.partition(":")[2]
        self._objects = S3Objects.from_uri(f"s3://{bucket}")
        self._head = np.empty(0, dtype=np.uint8)
        self._is_checked = False

    def read(self, start: int, stop: int) -> NDArray[np.uint8]:
        """See `SourceReader.read`."""
        check_range(self.file, start, stop)
        if start == 0 and len(self._head) < stop <= READ_AHEAD_NBYTES:
            self._head = self._fetch(0, min(self.file.size, READ_AHEAD_NBYTES))
        if stop <= len(self._head) or start == stop:
            return self._head[start:stop]
        return self._fetch(start, stop)

    def check_unchanged(self) -> None:
        """See `SourceReader.check_unchanged`; costs a request only if nothing was read."""
        if not self._is_checked:
            self._fetch(0, 0)

    def _fetch(self, start: int, stop: int) -> NDArray[np.uint8]:
        source = self.file.source
        try:
            data = self._objects.get_range_of(self._key, self._version, start, stop)
        except (PreconditionFailedError, RangeError) as error:  # some servers look at ranges first
            raise SourceChangedError(
                f"expected {source!r} with size:ETag {self.file.tag}, found another version; "
                "ingest again once nobody writes to it",
                source=source,
            ) from error
        except (ObjectNotFoundError, AccessDeniedError) as error:
            raise SourceUnreadableError(
                f"expected to read {source!r}, found: {error}", source=source
            ) from error
        self._is_checked = True
        return np.frombuffer(data, dtype=np.uint8)
