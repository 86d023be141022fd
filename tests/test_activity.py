"""Where the time of a task goes."""

import threading
import time

import pytest

from tstore.activity import Spent, recorded, spending


def test_time_and_bytes_are_booked_by_activity():
    with recorded() as ledger:
        with spending("read", 10):
            time.sleep(0.01)
        with spending("hash", 5):
            pass
        with spending("read", 7):
            pass
    assert list(ledger) == ["read", "hash"]
    assert ledger["read"].nbytes == 17
    assert ledger["hash"].nbytes == 5
    assert ledger["read"].seconds >= 0.01 > ledger["hash"].seconds


def test_what_fails_took_time_too():
    with recorded() as ledger, pytest.raises(ZeroDivisionError), spending("read", 10):
        raise ZeroDivisionError
    assert ledger["read"].nbytes == 10


def test_without_a_collector_nothing_is_kept():
    with spending("read", 10):
        pass
    with recorded() as ledger:
        pass
    assert ledger == {}


def test_tasks_of_other_threads_are_not_mixed_in():
    with recorded() as ledger:
        thread = threading.Thread(target=lambda: spending("read", 10).__enter__())
        thread.start()
        thread.join()
    assert ledger == {}


def test_sums():
    spent = Spent(1.0, 10)
    spent.add(Spent(2.0, 5))
    assert spent == Spent(3.0, 15)
