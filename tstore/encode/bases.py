"""Decoded bases that a worker keeps: siblings follow one another, in this shard or the next."""

from __future__ import annotations

import functools
from collections import OrderedDict
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tstore.catalog.stored import StoredTensor
from tstore.hub.location import HubTensor

BaseKey: TypeAlias = HubTensor | StoredTensor
"""Where the base was read: that one copy is sound does not make another so."""


class BaseCache:
    """Least recently used bases go first; the last one stays whatever its size.

    Parameters
    ----------
    nbytes : int
        Raw bytes to keep.
    """

    def __init__(self, nbytes: int) -> None:
        self._limit = nbytes
        self._held: OrderedDict[BaseKey, NDArray[np.uint8]] = OrderedDict()

    def get(self, key: BaseKey) -> NDArray[np.uint8] | None:
        """Its bytes, not to be written to, if they are kept."""
        if key in self._held:
            self._held.move_to_end(key)
        return self._held.get(key)

    def put(self, key: BaseKey, data: NDArray[np.uint8]) -> None:
        """Keep the bytes of a base, which were compared with its SHA-256."""
        self._held[key] = data
        while len(self._held) > 1 and sum(d.nbytes for d in self._held.values()) > self._limit:
            self._held.popitem(last=False)


@functools.cache
def worker_bases(nbytes: int) -> BaseCache:
    """The cache of this process: tasks come one after the other, often of the same family."""
    return BaseCache(nbytes)
