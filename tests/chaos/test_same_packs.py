"""The same packs for the same hub, whatever the number of workers and nodes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from support.chaos_runs import packs, run
from support.ray_head import ray_head
from support.two_nodes import TwoNodes

pytestmark = pytest.mark.chaos


def test_one_worker_two_workers_two_nodes(
    cluster: TwoNodes, local_hub: Path, tmp_path: Path, tell: Callable[[str], None]
) -> None:
    seconds = {}
    stores = {name: str(tmp_path / name) for name in ("two-nodes", "1", "2")}
    seconds["two-nodes"] = run(cluster.environment, local_hub, stores["two-nodes"])["seconds"]
    for workers in (1, 2):
        with ray_head(num_cpus=workers) as environment:
            report = run(environment, local_hub, stores[str(workers)])
            seconds[str(workers)] = report["seconds"]
    found = {name: packs(store) for name, store in stores.items()}
    assert len(found["1"]) >= 12
    assert found["1"] == found["2"] == found["two-nodes"]
    tell(f"{len(found['1'])} packs each; seconds {seconds}")
