"""Join the Ray cluster that was named, or start a private one for the length of a job."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import ray

from tstore.errors import ClusterNotFoundError
from tstore.settings import MIB

_OBJECT_STORE_NBYTES = 128 * MIB  # tasks exchange paths and counts, never tensors
_AUTH_MODE, _AUTH_TOKEN_PATH = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH"
_ANSWER_TIMEOUT_S = 10.0
_WORKER_ENVIRONMENT = {"NUMBA_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # one task, one core


@contextmanager
def ray_session() -> Iterator[None]:
    """A connected Ray for the block.

    The cluster that ``RAY_ADDRESS`` names is joined: a submitted job has it set. Without it a
    private Ray starts on this machine's cores and ends with the block; one that happens to run
    here, perhaps that of another job, is left alone.

    Raises
    ------
    ClusterNotFoundError
        Nothing answers at ``RAY_ADDRESS``.
    """
    runtime_env = {"env_vars": _WORKER_ENVIRONMENT}
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    address = os.environ.get("RAY_ADDRESS", "local")
    try:
        if address == "local":
            with _private_token():
                ray.init(
                    address="local",
                    include_dashboard=False,
                    logging_level=logging.ERROR,
                    object_store_memory=_OBJECT_STORE_NBYTES,
                    runtime_env=runtime_env,
                )
                yield
        else:
            _check_answers(address)
            ray.init(address=address, logging_level=logging.ERROR, runtime_env=runtime_env)
            yield
    finally:
        ray.shutdown()


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
