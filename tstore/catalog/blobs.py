"""Where blobs lie in packs, and reading them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import duckdb
import numpy as np
from numpy.typing import NDArray

import tstore_codecs
from tstore.catalog import keys
from tstore.errors import BlobDamagedError, BlobMissingError, ObjectNotFoundError, RangeError
from tstore.ids import content_hash, sha256
from tstore.objects import ObjectStore


@dataclass(frozen=True)
class BlobLocation:
    """One blob of a pack; the columns of the table ``blobs`` that reading needs.

    Attributes
    ----------
    tensor_id : str
        What it decodes to.
    sha256 : str
        SHA-256 of the decoded bytes, hex.
    raw_nbytes : int
        Decoded size.
    pack, offset, nbytes
        Bytes ``[offset, offset + nbytes)`` of the pack.
    base_id : str or None
        Tensor that decoding needs.
    checksum : str
        xxh3_128 of the encoded bytes, hex.
    """

    tensor_id: str
    sha256: str
    raw_nbytes: int
    pack: str
    offset: int
    nbytes: int
    base_id: str | None
    checksum: str

    def read(self, objects: ObjectStore) -> bytes:
        """The encoded bytes.

        Raises
        ------
        BlobMissingError
            The pack is gone or too short.
        BlobDamagedError
            The bytes are not those that were written.
        """
        try:
            data = objects.get_range(keys.pack(self.pack), self.offset, self.offset + self.nbytes)
        except (ObjectNotFoundError, RangeError) as error:
            raise BlobMissingError(
                f"expected the blob of {self.tensor_id} in pack {self.pack}: {error}; "
                "restore the pack from a backup, or ingest a repository that holds the tensor",
                tensor_id=self.tensor_id,
            ) from error
        found = content_hash(data)
        if found != self.checksum:
            raise BlobDamagedError(
                f"expected checksum {self.checksum} of the blob of {self.tensor_id} in pack "
                f"{self.pack}, found {found}; restore the pack from a backup",
                tensor_id=self.tensor_id,
            )
        return data

    def decode(self, encoded: bytes, base: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
        """The raw bytes, compared with their SHA-256.

        Parameters
        ----------
        encoded : bytes
            What `read` gave.
        base : uint8 (b,), optional
            Raw bytes of the base of a delta, of any size; see `resized`.

        Raises
        ------
        BlobDamagedError
            They are not what the blob was made from.
        """
        try:
            if base is not None:
                base = resized(base, tstore_codecs.inspect(encoded).raw_nbytes)
            data = tstore_codecs.decode(encoded, base=base)
        except tstore_codecs.CodecError as error:
            raise damaged(self, error) from error
        found = sha256(data)
        if found != self.sha256:
            raise BlobDamagedError(
                f"expected {self.tensor_id} to decode to SHA-256 {self.sha256}, found {found}; "
                f"restore pack {self.pack} from a backup",
                tensor_id=self.tensor_id,
            )
        return data


def damaged(blob: BlobLocation, error: tstore_codecs.CodecError) -> BlobDamagedError:
    """What is to be raised where a blob does not decode."""
    return BlobDamagedError(
        f"expected the blob of {blob.tensor_id} in pack {blob.pack} to decode: {error}",
        tensor_id=blob.tensor_id,
    )


def resized(base: NDArray[np.uint8], nbytes: int) -> NDArray[np.uint8]:
    """What a delta of `nbytes` is taken against: its base, cut or padded with zeros to that size.

    Parameters
    ----------
    base : uint8 (b,)
        Raw bytes of the base.
    nbytes : int
        Raw size of the delta's tensor.

    Returns
    -------
    uint8 (nbytes,)
        Not to be written to: it may be a view of `base`.
    """
    if base.size >= nbytes:
        return base[:nbytes]
    padded = np.zeros(nbytes, dtype=np.uint8)
    padded[: base.size] = base
    return padded


BLOB_COLUMNS = ", ".join(f'"{name}"' for name in BlobLocation.__dataclass_fields__)
"""Select list whose rows are the arguments of `BlobLocation`."""


def find_usable(
    connection: duckdb.DuckDBPyConnection, tensor_ids: Iterable[str]
) -> dict[str, BlobLocation]:
    """Blobs of those of the tensors that the store holds, by tensor id.

    Parameters
    ----------
    connection : DuckDBPyConnection
        `Catalog.connect`; blobs in packs that are known to be lost do not count.
    tensor_ids : iterable of str
    """
    query = (
        f"SELECT {BLOB_COLUMNS} FROM usable_blobs WHERE tensor_id IN (SELECT unnest($ids::text[]))"
    )
    rows = connection.sql(query, params={"ids": sorted(set(tensor_ids))}).fetchall()
    return {row[0]: BlobLocation(*row) for row in rows}
