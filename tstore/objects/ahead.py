"""Read from object storage ahead of the work: a request takes longer than what it brings."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from tstore.settings import MIB

AHEAD_NBYTES = 32 * MIB
"""What is read and not yet taken, unless a single read is larger."""
_THREADS = 8
_SCHEME = "s3://"

T = TypeVar("T")


def is_remote(uri: str) -> bool:
    """Whether what lies there is reached by requests."""
    return uri.startswith(_SCHEME)


def read_ahead(reads: Iterable[tuple[str, int, Callable[[], T]]]) -> Iterator[Callable[[], T]]:
    """Do remote reads in threads, in order, a bounded number of bytes ahead.

    Parameters
    ----------
    reads : iterable of (str, int, callable)
        Where from (a local path is read when its turn comes), how many bytes, and how.

    Yields
    ------
    callable
        Gives what the next read gave, or raises what it raised.
    """
    waiting: deque[tuple[int, Callable[[], T]]] = deque()
    ahead = 0
    with ThreadPoolExecutor(_THREADS) as pool:  # starts no thread before it is needed
        for uri, nbytes, read in reads:
            while waiting and ahead + nbytes > AHEAD_NBYTES:
                size, take = waiting.popleft()
                yield take
                ahead -= size
            waiting.append((nbytes, pool.submit(read).result if is_remote(uri) else read))
            ahead += nbytes
        for _, take in waiting:
            yield take
