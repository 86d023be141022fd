"""``examples/autoscale.sh``: an ingest finds no core, and the cluster grows until it has some."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support import small_tasks
from support.hubs import file_hashes
from support.ray_head import free_port
from support.stores import restore_all

ROOT = Path(__file__).parents[2]
HUB = ROOT / "examples" / "hub"
TIMEOUT_S = 230


@pytest.mark.chaos
def test_nodes_come_with_the_work(tmp_path: Path) -> None:
    store = tmp_path / "store"
    ingest = [sys.executable, small_tasks.__file__, str(HUB), str(store)]
    done = autoscale(ingest)
    assert done.returncode == 0, done.stderr
    cores = dict(re.findall(r"^node (\w+): (\d) cores$", done.stderr, re.MULTILINE))
    assert cores.pop("00000") == "0", "the head has no cores for tasks"
    assert set(cores.values()) == {"1"}
    assert json.loads(done.stdout.splitlines()[-1])["run"]
    assert file_hashes(restore_all(store, tmp_path / "restored")) == file_hashes(HUB)


@pytest.mark.chaos
def test_the_exit_code_is_that_of_the_command() -> None:
    assert autoscale(["sh", "-c", "exit 7"]).returncode == 7


def autoscale(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command on a cluster that grows; nothing of it is left afterwards."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [ROOT / "examples" / "autoscale.sh", *command],
        env={**os.environ, "PATH": path, "PORT": str(port := free_port())},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert not processes_with(f":{port}")
    return done


def processes_with(argument: str) -> list[str]:
    """Command lines of running processes that name it."""
    lines = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = process.read_text().replace("\0", " ")
        except OSError:  # it has just ended
            continue
        if argument in line:
            lines.append(line)
    return lines
