"""Reading from object storage ahead of the work."""

import threading
import time

import pytest

from tstore.objects import ahead as ahead_module
from tstore.objects.ahead import is_remote, read_ahead
from tstore.settings import MIB

S3 = "s3://bucket/store"


def test_what_is_remote():
    assert is_remote("s3://bucket/store")
    assert not is_remote("/s3/store")
    assert not is_remote("memory://store")


@pytest.mark.parametrize("uri", [S3, "/store"])
def test_results_come_in_order(uri):
    def slow(n):
        time.sleep(0.001 * (5 - n % 5))
        return n

    reads = ((uri, MIB, lambda n=n: slow(n)) for n in range(50))
    assert [take() for take in read_ahead(reads)] == list(range(50))


def test_remote_reads_overlap_and_local_ones_wait_for_their_turn():
    begun = []
    for uri, expected in ((S3, 4), ("/store", 1)):
        begun.clear()
        ready = threading.Barrier(4, timeout=30) if uri == S3 else None

        def read(n, ready=ready):
            begun.append(n)
            if ready:
                ready.wait()  # none of the four ends before all have begun
            return n

        takes = read_ahead((uri, 1, lambda n=n: read(n)) for n in range(4))
        assert next(takes)() == 0
        assert len(begun) == expected
        assert [take() for take in takes] == [1, 2, 3]


def test_bytes_ahead_are_bounded(monkeypatch):
    monkeypatch.setattr(ahead_module, "AHEAD_NBYTES", 100)
    asked = []

    def reads():
        for n in range(20):
            asked.append(n)
            yield S3, 30, lambda n=n: n

    for done, take in enumerate(read_ahead(reads())):
        assert take() == done
        assert len(asked) - done <= 4, "three times 30 bytes, and the one that waits for room"


def test_one_read_larger_than_the_budget_is_done(monkeypatch):
    monkeypatch.setattr(ahead_module, "AHEAD_NBYTES", 100)
    reads = [(S3, 1000, lambda: "large"), (S3, 10, lambda: "small")]
    assert [take() for take in read_ahead(reads)] == ["large", "small"]


def test_an_error_comes_where_its_result_would():
    def broken():
        raise OSError("gone")

    takes = read_ahead([(S3, 1, lambda: 1), (S3, 1, broken), (S3, 1, lambda: 3)])
    assert next(takes)() == 1
    with pytest.raises(OSError, match="gone"):
        next(takes)()
    assert next(takes)() == 3
