"""Progress of long work: bars on a terminal, plain lines elsewhere. Both go to stderr."""

from __future__ import annotations

import time
from datetime import timedelta
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

_LINE_EVERY_S = 5.0


class StageProgress:
    """Progress of one stage, in bytes; a context manager.

    Parameters
    ----------
    console : Console
        Where to write; a bar is drawn if it is a terminal.
    name : str
        Shown first.
    nbytes : int
        Total work.
    """

    def __init__(self, console: Console, name: str, nbytes: int) -> None:
        self._console, self._name, self._nbytes = console, name, nbytes
        self._done = 0
        self._started = self._told = time.monotonic()
        self._bar: Progress | None = None
        if console.is_terminal:
            self._bar = Progress(
                TextColumn("{task.description:>8}"),
                BarColumn(),
                DownloadColumn(),
                TransferSpeedColumn(),
                TimeRemainingColumn(),
                console=console,
            )
            self._task = self._bar.add_task(name, total=nbytes)

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
        elif kind is None and self._nbytes:
            self._line()

    def advance(self, nbytes: int) -> None:
        """Count finished work."""
        self._done += nbytes
        if self._bar is not None:
            self._bar.advance(self._task, nbytes)
        elif time.monotonic() - self._told >= _LINE_EVERY_S and self._done < self._nbytes:
            self._line()

    def _line(self) -> None:
        self._told = time.monotonic()
        seconds = max(self._told - self._started, 1e-9)
        left = (self._nbytes - self._done) * seconds / max(self._done, 1)
        self._console.print(
            f"{self._name:>8}  {self._done / 1e6:,.1f} of {self._nbytes / 1e6:,.1f} MB  "
            f"{seconds:.1f} s  {self._done / 1e6 / seconds:,.0f} MB/s"
            + (
                f"  about {timedelta(seconds=round(left))} left"
                if self._done < self._nbytes
                else ""
            ),
            highlight=False,
        )
