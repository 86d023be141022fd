"""Threads that start together."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")


def in_threads(count: int, function: Callable[[int], Result]) -> list[Result]:
    """Results of ``function(number)`` in so many threads at once."""
    barrier = threading.Barrier(count)

    def run(number: int) -> Result:
        barrier.wait()
        return function(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))
