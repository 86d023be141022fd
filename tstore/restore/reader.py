"""Decode tensors of a store, each checked against the SHA-256 of what was ingested."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

import tstore_codecs
from tstore.catalog.blobs import BlobLocation, resized
from tstore.errors import BlobDamagedError
from tstore.objects import ObjectStore
from tstore.settings import MIB

CACHE_NBYTES = 512 * MIB
"""Decoded bases that are kept: siblings in one file share them seldom, files often."""


class TensorReader:
    """Reads tensors by id.

    Parameters
    ----------
    objects : ObjectStore
        The store.
    blobs : mapping of str to BlobLocation
        Blobs by tensor id, bases included.
    """

    def __init__(self, objects: ObjectStore, blobs: Mapping[str, BlobLocation]) -> None:
        self._objects = objects
        self._blobs = blobs
        self._bases: OrderedDict[str, NDArray[np.uint8]] = OrderedDict()
        self._cached_nbytes = 0

    def read(self, tensor_id: str) -> NDArray[np.uint8]:
        """Raw bytes of a tensor; not to be written to.

        Raises
        ------
        BlobMissingError, BlobDamagedError
        """
        if tensor_id in self._bases:
            return self._bases[tensor_id]
        blob = self._blobs[tensor_id]
        base = None if blob.base_id is None else self._base(blob.base_id)
        return self._decode(blob, base)

    def _base(self, tensor_id: str) -> NDArray[np.uint8]:
        if tensor_id in self._bases:
            self._bases.move_to_end(tensor_id)
            return self._bases[tensor_id]
        data = self.read(tensor_id)
        self._bases[tensor_id] = data
        self._cached_nbytes += data.nbytes
        while self._cached_nbytes > CACHE_NBYTES and len(self._bases) > 1:
            _, oldest = self._bases.popitem(last=False)
            self._cached_nbytes -= oldest.nbytes
        return data

    def _decode(self, blob: BlobLocation, base: NDArray[np.uint8] | None) -> NDArray[np.uint8]:
        encoded = blob.read(self._objects)
        try:
            if base is not None:
                base = resized(base, tstore_codecs.inspect(encoded).raw_nbytes)
            data = tstore_codecs.decode(encoded, base=base)
        except tstore_codecs.CodecError as error:
            raise BlobDamagedError(
                f"expected the blob of {blob.tensor_id} in pack {blob.pack} to decode: {error}",
                tensor_id=blob.tensor_id,
            ) from error
        return blob.check(data)
