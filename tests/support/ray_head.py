"""A real Ray head node for tests: its own ports, directory and token."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_START_TIMEOUT_S = 90.0


def free_port() -> int:
    """A TCP port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def ray_head(num_cpus: int = 2) -> Iterator[dict[str, str]]:
    """Environment in which programs join a fresh head node; it ends with the block."""
    folder = Path(tempfile.mkdtemp(prefix="tsray-", dir="/tmp"))  # socket paths must stay short
    token = folder / "token"
    token.write_text(secrets.token_hex(32))
    port = free_port()
    scripts = Path(sys.executable).parent
    environment = {
        **os.environ,
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
        "RAY_USAGE_STATS_ENABLED": "0",
        "PATH": f"{scripts}:{os.environ['PATH']}",
    }
    command = [str(scripts / "ray"), "start", "--head", "--block", f"--num-cpus={num_cpus}"]
    command += [f"--port={port}", "--include-dashboard=false", "--disable-usage-stats"]
    command += ["--object-store-memory=100000000", "--temp-dir", str(folder / "rt")]
    command += [f"--ray-client-server-port={free_port()}"]
    log = (folder / "log").open("wb")
    head = subprocess.Popen(
        command, env=environment, start_new_session=True, stdout=log, stderr=subprocess.STDOUT
    )
    try:
        _wait_until_up(head, folder / "log")
        yield {**environment, "RAY_ADDRESS": f"127.0.0.1:{port}"}
    finally:
        head.terminate()  # the leader ends its children; the group would leave some behind
        try:
            head.wait(20)
        finally:
            log.close()
            with suppress(ProcessLookupError):
                os.killpg(head.pid, signal.SIGKILL)
            shutil.rmtree(folder, ignore_errors=True)


def _wait_until_up(head: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while "Ray runtime started" not in (text := log.read_text(errors="replace")):
        if head.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"expected a Ray head node to start, found:\n{text[-3000:]}")
        time.sleep(0.2)
