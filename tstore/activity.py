"""What a task spends its time on: reading, hashing, sketching, encoding, verifying, writing.

Stage functions say what they are doing with `spending`; whoever runs them collects it with
`recorded`. Without a collector it costs a microsecond and is lost.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeAlias


@dataclass
class Spent:
    """Time and raw bytes of one activity."""

    seconds: float = 0.0
    nbytes: int = 0

    def add(self, other: Spent) -> None:
        """Count what another task spent."""
        self.seconds += other.seconds
        self.nbytes += other.nbytes


Ledger: TypeAlias = dict[str, Spent]
"""By activity, in the order in which they first came."""

_ledger: ContextVar[Ledger | None] = ContextVar("ledger", default=None)


@contextmanager
def recorded() -> Iterator[Ledger]:
    """Collect what is spent in the block, by this thread."""
    ledger: Ledger = {}
    token = _ledger.set(ledger)
    try:
        yield ledger
    finally:
        _ledger.reset(token)


@contextmanager
def spending(activity: str, nbytes: int) -> Iterator[None]:
    """Book the time of the block, and `nbytes` of raw data, on an activity. Do not nest it."""
    started = time.perf_counter()
    try:
        yield
    finally:
        ledger = _ledger.get()
        if ledger is not None:
            spent = Spent(time.perf_counter() - started, nbytes)
            ledger.setdefault(activity, Spent()).add(spent)
