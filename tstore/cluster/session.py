"""Join the Ray cluster that is there, or start a private one for the length of a job."""

from __future__ import annotations

import logging
import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import ray

from tstore.settings import MIB

_OBJECT_STORE_NBYTES = 128 * MIB  # tasks exchange paths and counts, never tensors
_AUTH_MODE, _AUTH_TOKEN_PATH = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH"
_WORKER_ENVIRONMENT = {"NUMBA_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # one task, one core


@contextmanager
def ray_session() -> Iterator[None]:
    """A connected Ray for the block.

    A submitted job (``RAY_ADDRESS``) or a cluster started on this machine is joined; otherwise a
    private one starts on this machine's cores and ends with the block.
    """
    runtime_env = {"env_vars": _WORKER_ENVIRONMENT}
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        ray.init(
            address=os.environ.get("RAY_ADDRESS", "auto"),
            logging_level=logging.ERROR,
            runtime_env=runtime_env,
        )
    except ConnectionError:
        if "RAY_ADDRESS" in os.environ:
            raise
        with _private_token():
            ray.init(
                address="local",
                include_dashboard=False,
                logging_level=logging.ERROR,
                object_store_memory=_OBJECT_STORE_NBYTES,
                runtime_env=runtime_env,
            )
            yield from _until_done()
        return
    yield from _until_done()


def _until_done() -> Iterator[None]:
    try:
        yield
    finally:
        ray.shutdown()


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
