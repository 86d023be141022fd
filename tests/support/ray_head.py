"""A real Ray head node for tests: its own ports, directory and token."""

from __future__ import annotations

import gc
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_START_TIMEOUT_S = 90.0


def forget_ray_processes() -> None:
    """Call after a Ray of this very process has ended. Ray does not wait for its processes, and a
    test that happens to collect what it left of them would be blamed for that."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def free_port() -> int:
    """A TCP port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def ray_head(num_cpus: int = 2, *, dashboard: bool = False) -> Iterator[dict[str, str]]:
    """Environment in which programs join a fresh head node; it ends with the block.

    With a dashboard, ``ray job`` reaches it in that environment as well.
    """
    folder = Path(tempfile.mkdtemp(prefix="tsray-", dir="/tmp"))  # socket paths must stay short
    token = folder / "token"
    token.write_text(secrets.token_hex(32))
    port, dashboard_port, agent_port = free_port(), free_port(), free_port()
    scripts = Path(sys.executable).parent
    environment = {
        **os.environ,
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
        "RAY_USAGE_STATS_ENABLED": "0",
        "PATH": f"{scripts}:{os.environ['PATH']}",
    }
    command = [str(scripts / "ray"), "start", "--head", "--block", f"--num-cpus={num_cpus}"]
    command += [f"--port={port}", f"--include-dashboard={dashboard}", "--disable-usage-stats"]
    command += ["--object-store-memory=100000000", "--temp-dir", str(folder / "rt")]
    command += [f"--ray-client-server-port={free_port()}", f"--dashboard-port={dashboard_port}"]
    command += [f"--dashboard-agent-listen-port={agent_port}"]
    log = (folder / "log").open("wb")
    head = subprocess.Popen(
        command, env=environment, start_new_session=True, stdout=log, stderr=subprocess.STDOUT
    )
    environment["RAY_ADDRESS"] = f"127.0.0.1:{port}"
    environment["RAY_API_SERVER_ADDRESS"] = f"http://127.0.0.1:{dashboard_port}"
    try:
        _wait_until(lambda: "Ray runtime started" in _log(folder), head, folder)
        if dashboard:  # it answers before the agent does that starts jobs
            _wait_until(lambda: _listens(dashboard_port) and _listens(agent_port), head, folder)
        yield environment
    finally:
        head.terminate()  # the leader ends its children; the group would leave some behind
        with suppress(subprocess.TimeoutExpired):
            head.wait(20)
        with suppress(ProcessLookupError):
            os.killpg(head.pid, signal.SIGKILL)
        head.wait()
        log.close()
        shutil.rmtree(folder, ignore_errors=True)


def ask_dashboard(environment: dict[str, str], path: str) -> bytes:
    """The answer of the dashboard of a head node to ``GET``; it wants the token."""
    token = Path(environment["RAY_AUTH_TOKEN_PATH"]).read_text()
    url = environment["RAY_API_SERVER_ADDRESS"] + path
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return bytes(answer.read())


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _log(folder: Path) -> str:
    return (folder / "log").read_text(errors="replace")


def _wait_until(holds: Callable[[], bool], head: subprocess.Popen[bytes], folder: Path) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while not holds():
        if head.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"expected a Ray head node to start, found:\n{_log(folder)[-3000:]}")
        time.sleep(0.2)
