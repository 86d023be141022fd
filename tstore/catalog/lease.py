"""The writer lease: one mutating job at a time. Readers never take it.

A holder may stall at any moment, even between its last look at the lease and its commit. So it
announces its run in the lease before it commits, and whoever takes the lease over bars an announced
run that is not committed yet (`tstore.catalog.runs.bar_run`). Both are create-only puts of the same
marker: one of them wins, whatever sleeps how long.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tstore.catalog import keys
from tstore.catalog.runs import bar_run
from tstore.errors import (
    LeaseHeldError,
    LeaseLostError,
    ObjectExistsError,
    ObjectNotFoundError,
    ObjectStoreUnavailableError,
    PreconditionFailedError,
    StoreNotWritableError,
)
from tstore.objects import ObjectStore
from tstore.settings import LEASE_RENEW_S, LEASE_TTL_S

_POLL_S = 1.0
_PASSING = ObjectStoreUnavailableError, StoreNotWritableError
"""Why a lease cannot be written now, which says nothing of who holds it."""


class WriterLease:
    """A held lease, renewed by a background thread until it is released.

    Made by `hold`; `check` before a commit.
    """

    def __init__(self, objects: ObjectStore, version: str, content: dict[str, Any]) -> None:
        self._objects = objects
        self._version = version
        self._content = content
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._lost: str | None = None
        self._thread = threading.Thread(target=self._renew_until_stopped, daemon=True)
        self._thread.start()

    def _renew_until_stopped(self) -> None:
        while not self._stop.wait(LEASE_RENEW_S):
            try:
                self.check()
            except LeaseLostError:
                return
            except _PASSING:
                continue  # it may work again before the lease expires; a commit checks it

    def announce(self, run_id: str) -> None:
        """Renew, and say which run is about to be committed; errors as of `check`."""
        self._content = {**self._content, "committing": run_id}
        self.check()

    def check(self, cause: Exception | None = None) -> None:
        """Renew now; `LeaseLostError` (from `cause`) if another job took the lease meanwhile."""
        with self._lock:
            if self._lost is None:
                renewed = {**self._content, "expires_at": time.time() + LEASE_TTL_S}
                try:
                    self._version = self._objects.put_if_match(
                        keys.WRITER_LEASE, [_dump(renewed)], self._version
                    )
                except (PreconditionFailedError, ObjectNotFoundError) as error:
                    self._lost = str(error)
            if self._lost is not None:
                raise LeaseLostError(
                    "expected to hold the writer lease, found that another job took it; "
                    f"nothing was committed, run the job again ({self._lost})"
                ) from cause

    def release(self) -> None:
        """Stop renewing and give the lease back."""
        self._stop.set()
        self._thread.join()
        with self._lock:
            _give_back(self._objects, self._content, self._version)


@contextmanager
def hold(
    objects: ObjectStore, purpose: str, *, wait_s: float, on_wait: Callable[[str], None]
) -> Iterator[WriterLease]:
    """Hold the writer lease for the length of a ``with`` block.

    Parameters
    ----------
    objects : ObjectStore
        The store.
    purpose : str
        Shown to whoever waits, e.g. ``ingest of /hub``.
    wait_s : float
        How long to wait for another holder before `LeaseHeldError`.
    on_wait : callable
        Called once with a line that names the holder, if there is a wait.

    Raises
    ------
    LeaseHeldError
        Another job holds it still.
    LeaseLostError
        The block failed and the lease is lost: whoever took it may have removed what was staged,
        so that is the reason to tell, whatever failed.
    """
    content = {"holder": uuid.uuid4().hex, "purpose": purpose, **_this_process()}
    try:
        lease = WriterLease(objects, _acquire(objects, content, wait_s, on_wait), content)
    except BaseException:  # Ctrl-C, say, when it was just taken
        _give_back_own(objects, content["holder"])
        raise
    try:
        yield lease
    except LeaseLostError:
        raise
    except Exception as error:
        with suppress(*_PASSING):
            lease.check(error)
        raise
    finally:
        lease.release()


def _acquire(
    objects: ObjectStore, content: dict[str, Any], wait_s: float, on_wait: Callable[[str], None]
) -> str:
    deadline = time.monotonic() + wait_s
    told = False
    while True:
        fresh = _dump({**content, "expires_at": time.time() + LEASE_TTL_S})
        try:
            objects.put_new(keys.WRITER_LEASE, [fresh])
            return objects.get_versioned(keys.WRITER_LEASE)[1]
        except ObjectExistsError:
            data, version = objects.get_versioned(keys.WRITER_LEASE)
        holder = json.loads(data)
        if holder["expires_at"] < time.time() or _died_here(holder):
            announced = {"committing": run} if (run := holder.get("committing")) else {}
            claim = _dump({**json.loads(fresh), **announced})  # kept, should we die before the bar
            try:
                taken = objects.put_if_match(keys.WRITER_LEASE, [claim], version)
            except PreconditionFailedError:  # renewed, or another job was faster
                continue
            if run:
                bar_run(objects, run, content["purpose"])
            return taken
        who = (
            f"{holder['purpose']} (process {holder['pid']} on {holder['host']}, "
            f"lease until {time.strftime('%H:%M:%S', time.localtime(holder['expires_at']))})"
        )
        if time.monotonic() >= deadline:
            raise LeaseHeldError(
                f"expected the writer lease to be free, found it held by {who}; "
                "wait for that job, or for the lease to expire if it crashed"
            )
        if not told:
            on_wait(f"waiting for {who}")
            told = True
        time.sleep(_POLL_S)


def _give_back(objects: ObjectStore, content: dict[str, Any], version: str) -> None:
    """A lost lease is not ours to give back; one that cannot be given back expires."""
    expired = {**content, "expires_at": 0.0}
    with suppress(PreconditionFailedError, ObjectNotFoundError, *_PASSING):
        objects.put_if_match(keys.WRITER_LEASE, [_dump(expired)], version)


def _give_back_own(objects: ObjectStore, holder: str) -> None:
    """Give the lease back if this holder has it; a run that is still to be barred stays named."""
    with suppress(ObjectNotFoundError, *_PASSING):
        data, version = objects.get_versioned(keys.WRITER_LEASE)
        content = json.loads(data)
        if content["holder"] == holder:
            _give_back(objects, content, version)


def _dump(content: dict[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True).encode()


def _this_process() -> dict[str, Any]:
    return {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "machine": _machine(),
        "started": _start_time(os.getpid()),
    }


def _machine() -> str:
    """One boot of one machine and its process-id namespace, so that a pid means one process."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    if not boot.exists():
        return uuid.uuid4().hex  # cannot tell: matches nothing, so only expiry frees the lease
    return f"{boot.read_text().strip()}/{os.readlink('/proc/self/ns/pid')}"


def _start_time(pid: int) -> str | None:
    """Start time of a process in clock ticks since boot; None if there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] == "Z" else fields[19]


def _died_here(holder: dict[str, Any]) -> bool:
    """The holder ran on this machine and is gone: no need to wait for its lease to expire."""
    return bool(holder["machine"] == _machine() and _start_time(holder["pid"]) != holder["started"])
