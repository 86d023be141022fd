"""Which Ray a job takes: the one that was named, else its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from support.ray_head import free_port, ray_head
from tstore.cluster.session import ray_session
from tstore.errors import ClusterNotFoundError

PRIVATE = """
import ray
from tstore.cluster.session import ray_session
with ray_session():
    print(ray.get_runtime_context().gcs_address)
print(not ray.is_initialized())
"""


@pytest.fixture(autouse=True)
def _no_ray_around(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)


def test_nothing_answers_at_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{free_port()}")
    with pytest.raises(ClusterNotFoundError, match="RAY_ADDRESS=127"), ray_session():
        pass


def test_a_cluster_that_was_not_named_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with ray_head(num_cpus=1) as environment:
        # A process of its own: Ray keeps the token of the first cluster that a process starts.
        done = subprocess.run(
            [sys.executable, "-c", PRIVATE], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        private, ended = done.stdout.split()
        assert private != environment["RAY_ADDRESS"]
        assert ended == "True"
