"""Bases that a worker keeps between deltas."""

import numpy as np

from tstore.catalog.blobs import BlobLocation
from tstore.catalog.stored import StoredTensor
from tstore.encode.bases import BaseCache, worker_bases


def key(name, pack="pack", store="/store"):
    return StoredTensor(store, BlobLocation(name, f"sha-{name}", 10, pack, 0, 5, None, "sum"))


def test_a_base_is_kept_under_the_place_where_it_was_read():
    cache = BaseCache(100)
    data = np.arange(10, dtype=np.uint8)
    cache.put(key("a"), data)
    assert cache.get(key("a")) is data
    assert cache.get(key("a", pack="another, perhaps damaged")) is None
    assert cache.get(key("a", store="/other")) is None
    assert cache.get(key("b")) is None


def test_the_least_recently_used_go_first():
    cache = BaseCache(25)
    for name in "abc":
        cache.put(key(name), np.zeros(10, np.uint8))
        cache.get(key("a"))
    assert [cache.get(key(name)) is not None for name in "abc"] == [True, False, True]


def test_one_larger_than_the_budget_is_kept_alone():
    cache = BaseCache(25)
    cache.put(key("a"), np.zeros(10, np.uint8))
    cache.put(key("b"), np.zeros(100, np.uint8))
    assert cache.get(key("a")) is None
    assert cache.get(key("b")) is not None


def test_tasks_of_a_worker_share_a_cache():
    assert worker_bases(1000) is worker_bases(1000)
