"""Where the raw bytes of a tensor lie in the hub."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tstore.activity import spending
from tstore.errors import SourceChangedError
from tstore.hub.reader import SourceFile, open_source
from tstore.ids import sha256


@dataclass(frozen=True)
class HubLocation:
    """Bytes ``[start, start + nbytes)`` of a source file."""

    source: SourceFile
    start: int
    nbytes: int

    def read(self) -> NDArray[np.uint8]:
        """All bytes; `SourceRejectedError` when the file changed or cannot be read."""
        return self.read_pieces([(0, self.nbytes)])

    def read_pieces(self, ranges: Sequence[tuple[int, int]]) -> NDArray[np.uint8]:
        """The bytes of these ranges, one after the other; ranges count from `start`."""
        nbytes = sum(last - first for first, last in ranges)
        with spending("read", nbytes), open_source(self.source) as reader:
            pieces = [reader.read(self.start + first, self.start + last) for first, last in ranges]
            reader.check_unchanged()
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


@dataclass(frozen=True)
class HubTensor:
    """A scanned tensor or opaque extent, and where its bytes lie.

    Attributes
    ----------
    tensor_id, sha256 : str
        What the bytes must be.
    location : HubLocation
        Where to read them.
    """

    tensor_id: str
    sha256: str
    location: HubLocation

    @property
    def nbytes(self) -> int:
        """Raw bytes."""
        return self.location.nbytes

    @property
    def place(self) -> str:
        """The source that it is read from."""
        return self.location.source.source

    @property
    def version(self) -> str:
        """Changes when the source does."""
        return self.location.source.tag

    def read(self) -> NDArray[np.uint8]:
        """The scanned bytes; `SourceChangedError` when others lie there now."""
        data = self.location.read()
        with spending("hash", data.nbytes):
            found = sha256(data)
        if found != self.sha256:
            raise SourceChangedError(
                f"expected the bytes that were scanned (SHA-256 {self.sha256}) in "
                f"{self.location.source.source}, found {found}; ingest again when nothing "
                "writes to the file",
                source=self.location.source.source,
            )
        return data
