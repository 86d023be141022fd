"""Join the Ray cluster that was named, or start a private one for the length of a job."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError

from tstore.errors import ClusterNotFoundError
from tstore.settings import GIB, MIB

_OBJECT_STORE_NBYTES = 128 * MIB  # tasks exchange paths, counts, rows of dry runs; never tensors
_AUTH_MODE, _AUTH_TOKEN_PATH = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH"
_ANSWER_TIMEOUT_S = 10.0
_NODE_WAIT_S = 900.0
"""An autoscaler may bring a larger node; ten minutes are what a cloud takes on a bad day."""
_WORKER_ENVIRONMENT = {
    # One task, one core.
    "NUMBA_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    # A worker goes through hundreds of buffers of a tensor's size. glibc would give each back to
    # the kernel, and fresh pages cost more than reading, hashing and sketching what goes in them.
    "MALLOC_MMAP_THRESHOLD_": str(GIB),
    "MALLOC_TRIM_THRESHOLD_": str(GIB),
    "MALLOC_TOP_PAD_": str(64 * MIB),
    "MALLOC_ARENA_MAX": "1",
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}
_OOM_RETRIES = ("RAY_task_oom_retries", "3")
"""Ray by itself tries a task forever that runs its node out of memory."""


@contextmanager
def ray_session(prepare: Callable[[], None] = lambda: None) -> Iterator[None]:
    """A connected Ray for the block.

    The cluster that ``RAY_ADDRESS`` names is joined: a submitted job has it set. Without it a
    private Ray starts on this machine's cores and ends with the block; one that happens to run
    here, perhaps that of another job, is left alone.

    Parameters
    ----------
    prepare : callable
        What each worker of a private Ray does first, so that it is not timed with the work.

    Raises
    ------
    ClusterNotFoundError
        Nothing answers at ``RAY_ADDRESS``, it refuses us, or Ray does not start.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault(*_OOM_RETRIES)
    address = _address()
    try:
        if address == "local":
            with _private_token():
                _connect(
                    address="local",
                    include_dashboard=False,
                    object_store_memory=_OBJECT_STORE_NBYTES,
                )
                _start_workers(prepare)
                yield
        else:
            _check_answers(address)
            _connect(address=address)
            yield
    finally:
        ray.shutdown()


def _connect(**options: Any) -> None:
    """Start or join Ray. Its server may fail to start on a busy machine, so that is tried twice."""
    for last in (False, True):
        try:
            ray.init(
                logging_level=logging.ERROR,
                runtime_env={"env_vars": _WORKER_ENVIRONMENT},
                **options,
            )
            return
        except (RayError, RuntimeError, OSError) as error:  # ConnectionError is one of the last
            if last:
                raise _no_ray(options["address"], error) from error
            ray.shutdown()


def _no_ray(address: str, error: Exception) -> ClusterNotFoundError:
    reason = str(error).strip().partition("\n")[0]
    return ClusterNotFoundError(
        f"expected Ray to start or to be joined (address {address}), found "
        f"{type(error).__name__}: {reason}; "
        "check memory, the disk of /tmp/ray, and RAY_AUTH_MODE and its token"
    )


def _start_workers(prepare: Callable[[], None]) -> None:
    """Start a worker per core."""
    task = ray.remote(num_cpus=1)(_prepare)
    cpus: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    ray.get([task.remote(prepare) for _ in range(int(cpus["CPU"]))])


def _prepare(prepare: Callable[[], None]) -> None:
    prepare()  # Ray takes functions only, this may be any callable


def node_wait_s() -> float:
    """How long a task may wait for a node that is large enough: a private Ray never gets one."""
    return 0.0 if _address() == "local" else _NODE_WAIT_S


def _address() -> str:
    return os.environ.get("RAY_ADDRESS", "local")


def _check_answers(address: str) -> None:
    """Ray itself retries for minutes where nothing listens."""
    host, _, port = address.rpartition(":")
    if not (host and port.isdigit()) or "/" in host:  # auto, or ray://host:port
        return
    try:
        socket.create_connection((host, int(port)), timeout=_ANSWER_TIMEOUT_S).close()
    except OSError as error:
        raise ClusterNotFoundError(
            f"expected a Ray cluster at RAY_ADDRESS={address}, found {error}; start it, or unset "
            "RAY_ADDRESS for a private one"
        ) from error


@contextmanager
def _private_token() -> Iterator[None]:
    """A token of our own for the block, unless the user chose how to authenticate.

    Ray turns token authentication on for a private cluster. Left alone it would write the token
    to the home directory, where it changes how every later ``ray start`` of this user behaves.
    """
    before = {name: os.environ.get(name) for name in (_AUTH_MODE, _AUTH_TOKEN_PATH)}
    if any(value is not None for value in before.values()):
        yield
        return
    with tempfile.TemporaryDirectory(prefix="tstore-ray-") as folder:
        token = Path(folder, "token")
        token.write_text(secrets.token_hex(32))
        token.chmod(0o600)
        os.environ[_AUTH_TOKEN_PATH] = str(token)
        try:
            yield
        finally:
            for name in before:  # Ray set the mode
                os.environ.pop(name, None)
