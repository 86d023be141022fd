"""Tensors that the store holds, as something to read: a blob and, of a delta, its base."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import duckdb
import numpy as np
from numpy.typing import NDArray

import tstore_codecs
from tstore.activity import spending
from tstore.catalog.blobs import BlobLocation, damaged, find_usable, resized
from tstore.objects import open_objects


@dataclass(frozen=True)
class StoredTensor:
    """A tensor of the store.

    Attributes
    ----------
    uri : str
        The store.
    blob : BlobLocation
    base : StoredTensor or None
        What decoding needs; itself stored without a base.
    """

    uri: str
    blob: BlobLocation
    base: StoredTensor | None = None

    @property
    def tensor_id(self) -> str:
        return self.blob.tensor_id

    @property
    def sha256(self) -> str:
        """Of the raw bytes, hex."""
        return self.blob.sha256

    @property
    def nbytes(self) -> int:
        """Raw bytes."""
        return self.blob.raw_nbytes

    @property
    def place(self) -> str:
        """Where it is read from, for messages."""
        return self.uri

    @property
    def version(self) -> str:
        """Changes when other bytes may lie there."""
        return self.blob.pack

    def read(
        self, read_base: Callable[[StoredTensor], NDArray[np.uint8]] | None = None
    ) -> NDArray[np.uint8]:
        """The raw bytes, compared with their SHA-256; not to be written to.

        Parameters
        ----------
        read_base : callable, optional
            How to get at the base's bytes, e.g. from a cache; `read` by default.

        Raises
        ------
        BlobMissingError, BlobDamagedError
        """
        base = None
        if self.base is not None:
            base = self.base.read() if read_base is None else read_base(self.base)
        with spending("read", self.nbytes):
            return self.blob.decode(self.blob.read(open_objects(self.uri)), base)

    def read_pieces(self, ranges: Sequence[tuple[int, int]]) -> NDArray[np.uint8]:
        """Raw bytes of these ranges, one after the other.

        Raises
        ------
        BlobMissingError, BlobDamagedError
        """
        base = None if self.base is None else resized(self.base.read(), self.nbytes)
        encoded = self.blob.read(open_objects(self.uri))
        try:
            return np.concatenate(
                [tstore_codecs.decode_range(encoded, *part, base=base) for part in ranges]
            )
        except tstore_codecs.CodecError as error:
            raise damaged(self.blob, error) from error


def find_stored(
    connection: duckdb.DuckDBPyConnection, uri: str, tensor_ids: Iterable[str]
) -> dict[str, StoredTensor]:
    """Those of the tensors that the store holds, by tensor id.

    Parameters
    ----------
    connection : DuckDBPyConnection
        `Catalog.connect`.
    uri : str
        The store.
    tensor_ids : iterable of str
    """
    blobs = find_usable(connection, tensor_ids)
    bases = find_usable(connection, (b.base_id for b in blobs.values() if b.base_id is not None))
    return {
        name: StoredTensor(
            uri, blob, None if blob.base_id is None else StoredTensor(uri, bases[blob.base_id])
        )
        for name, blob in blobs.items()
    }
