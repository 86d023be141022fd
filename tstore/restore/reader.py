"""Decode tensors of a store, each checked against the SHA-256 of what was ingested."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tstore.catalog.blobs import BlobLocation
from tstore.objects import ObjectStore
from tstore.objects.ahead import read_ahead
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
        (data,) = self.read_all([tensor_id])
        return data

    def read_all(self, tensor_ids: Iterable[str]) -> Iterator[NDArray[np.uint8]]:
        """Raw bytes of these tensors one after the other, blobs being read ahead.

        Raises
        ------
        BlobMissingError, BlobDamagedError
        """
        tensor_ids = list(tensor_ids)
        reads = (
            (self._objects.uri, self._blobs[name].nbytes, partial(self._encoded, name))
            for name in tensor_ids
        )
        for tensor_id, take in zip(tensor_ids, read_ahead(reads), strict=True):
            encoded = take()
            yield (
                self._bases[tensor_id]
                if tensor_id in self._bases
                else self._tensor(tensor_id, encoded)
            )

    def _encoded(self, tensor_id: str) -> dict[str, bytes]:
        """Blobs that the tensor needs and that are not decoded yet."""
        base_id = self._blobs[tensor_id].base_id
        needed = (name for name in (tensor_id, base_id) if name is not None)
        return {
            name: self._blobs[name].read(self._objects)
            for name in needed
            if name not in self._bases
        }

    def _tensor(self, tensor_id: str, encoded: Mapping[str, bytes]) -> NDArray[np.uint8]:
        blob = self._blobs[tensor_id]
        base = None if blob.base_id is None else self._base(blob.base_id, encoded)
        # A base that went out of the cache since it was looked for is read now.
        data = encoded.get(tensor_id) or blob.read(self._objects)
        return blob.decode(data, base)

    def _base(self, tensor_id: str, encoded: Mapping[str, bytes]) -> NDArray[np.uint8]:
        if tensor_id in self._bases:
            self._bases.move_to_end(tensor_id)
            return self._bases[tensor_id]
        data = self._tensor(tensor_id, encoded)
        self._bases[tensor_id] = data
        self._cached_nbytes += data.nbytes
        while self._cached_nbytes > CACHE_NBYTES and len(self._bases) > 1:
            _, oldest = self._bases.popitem(last=False)
            self._cached_nbytes -= oldest.nbytes
        return data
