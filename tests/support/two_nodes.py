"""A Ray cluster to be hurt: a head that runs no tasks, and nodes of one CPU each."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from unittest import mock

from support.ray_head import free_port, ray_head

_HEALTH = {
    "RAY_health_check_initial_delay_ms": "500",
    "RAY_health_check_period_ms": "300",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
    "RAY_grpc_keepalive_timeout_ms": "600000",
}
"""A lost node is noticed in seconds, not in a minute; a driver that halts is waited for."""
TIMEOUT_S = 200.0
_POLL_S = 0.1


def wait_until(holds: Callable[[], bool], what: str, timeout_s: float = TIMEOUT_S) -> None:
    """Ask again and again until it holds."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, f"expected {what} within {timeout_s:.0f} s"
        time.sleep(_POLL_S)


class Node:
    """A node of one CPU.

    Parameters
    ----------
    environment : dict of str to str
        In which programs join the cluster.
    folder : Path
        For its log.
    memory_nbytes : int, optional
        Memory that it offers to tasks.
    """

    def __init__(
        self, environment: dict[str, str], folder: Path, memory_nbytes: int | None = None
    ) -> None:
        command = [str(Path(sys.executable).parent / "ray"), "start", "--block", "--num-cpus=1"]
        command += [f"--address={environment['RAY_ADDRESS']}", "--object-store-memory=100000000"]
        command += [f"--dashboard-agent-listen-port={free_port()}", "--disable-usage-stats"]
        command += ["--min-worker-port=0", "--max-worker-port=0"]  # any: the nodes share one host
        if memory_nbytes is not None:
            command.append(f"--memory={memory_nbytes}")
        self._log = folder / f"{time.monotonic_ns()}.log"
        with self._log.open("wb") as log:
            self._leader = subprocess.Popen(
                command, env=environment, start_new_session=True, stdout=log, stderr=log
            )
        wait_until(self._is_up, "a node to join")

    def _is_up(self) -> bool:
        told = self._log.read_text(errors="replace")
        assert self._leader.poll() is None, f"expected a Ray node to start, found:\n{told}"
        return "Ray runtime started" in told

    def processes(self) -> list[int]:
        """Its processes, children after their parents."""
        return _family(self._leader.pid)

    def kill(self) -> None:
        """End every process at once, as a power cut would."""
        for pid in self.processes():  # a worker that is born meanwhile misses its raylet, and ends
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._leader.wait()


class TwoNodes:
    """Made by `two_nodes`.

    Attributes
    ----------
    environment : dict of str to str
        In which programs join the cluster.
    nodes : list of Node
        Those that run tasks.
    """

    def __init__(
        self, environment: dict[str, str], folder: Path, memory_nbytes: int | None
    ) -> None:
        self.environment = environment
        self.nodes: list[Node] = []
        self._folder, self._memory_nbytes = folder, memory_nbytes

    def add(self) -> Node:
        """One more node."""
        self.nodes.append(Node(self.environment, self._folder, self._memory_nbytes))
        return self.nodes[-1]

    def lose(self, node: Node) -> None:
        """A node goes down."""
        self.nodes.remove(node)
        node.kill()

    def node_of(self, worker: int) -> Node:
        """Where this process runs."""
        (node,) = (node for node in self.nodes if worker in node.processes())
        return node


@contextmanager
def two_nodes(memory_nbytes: int | None = None) -> Iterator[TwoNodes]:
    """A cluster with two nodes of one CPU, for the length of the block.

    Its processes have the environment of this one, with the health checks of the impatient.
    """
    folder = Path(tempfile.mkdtemp(prefix="tsnode-", dir="/tmp"))
    with mock.patch.dict(os.environ, _HEALTH), ray_head(num_cpus=0) as environment:
        cluster = TwoNodes(environment, folder, memory_nbytes)
        try:
            for _ in range(2):
                cluster.add()
            yield cluster
        finally:
            for node in cluster.nodes:
                node.kill()
            shutil.rmtree(folder)


def is_stopped(pid: int) -> bool:
    """Whether the process is halted by SIGSTOP."""
    return _status(pid)[0] == "T"


def _family(pid: int) -> list[int]:
    """A process and all its descendants, unless they are gone or dead."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            children.setdefault(int(_status(int(entry.name))[1]), []).append(int(entry.name))
    found = list[int]()
    waiting = [pid]
    while waiting:
        member = waiting.pop()
        waiting += children.get(member, [])
        if _status(member)[0] not in "ZX":
            found.append(member)
    return found


def _status(pid: int) -> tuple[str, str]:
    """State and parent of a process; X for one that is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return "X", "0"
    return fields[0], fields[1]
