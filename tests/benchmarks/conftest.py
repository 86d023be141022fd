"""A hub that is small enough to compare everything with everything."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.planning.bench import Bench
from benchmarks.planning.hub import Hub
from benchmarks.planning.scan import read_hub
from support.hubs import bf16_weights, drifted, safetensors_bytes
from tstore.settings import SketchSettings

SHAPE = (64, 512)
SETTINGS = SketchSettings(width=512)
LINEAGE = {
    "lab/base": None,
    "org/tuned": "lab/base",
    "org/renamed": "lab/base",
    "org/run/step-1": "org/tuned",
    "zoo/merge": ["org/tuned", "org/renamed"],
    "other/stranger": None,
}
"""Models in order of arrival, with their true parents."""


def write_model(root: Path, model: str, tensors: dict[str, NDArray[np.uint16]]) -> None:
    folder = root / model
    folder.mkdir(parents=True)
    entries = {name: ("BF16", weight) for name, weight in tensors.items()}
    (folder / "model.safetensors").write_bytes(safetensors_bytes(entries))


def renamed(tensors: dict[str, NDArray[np.uint16]]) -> dict[str, NDArray[np.uint16]]:
    return {f"model.{name}": weight for name, weight in tensors.items()}


@pytest.fixture(scope="session")
def hub_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A family of five, of which one repository has a run below it, and a stranger."""
    root = tmp_path_factory.mktemp("planning") / "hub"
    rng = np.random.default_rng(3)
    base = {f"{i}.weight": bf16_weights(rng, *SHAPE) for i in range(4)} | {
        "norm": bf16_weights(rng, 64)
    }
    tuned = {name: drifted(rng, weight, 0.2) for name, weight in base.items()}
    tuned["norm"] = base["norm"]
    other = {name: drifted(rng, weight, 0.2) for name, weight in base.items()}
    write_model(root, "lab/base", base)
    write_model(root, "org/tuned", tuned)
    write_model(root, "org/renamed", renamed(other))
    write_model(root, "org/run/step-1", {n: drifted(rng, w, 0.05) for n, w in tuned.items()})
    merged = {name: tuned[name] & other[name] for name in base}
    write_model(root, "zoo/merge", merged)
    write_model(root, "other/stranger", {n: bf16_weights(rng, *w.shape) for n, w in base.items()})
    (root / "org/tuned/README.md").write_text("---\nbase_model: lab/base\n---\n# tuned\n")
    (root / "org/renamed/README.md").write_text('---\nbase_model:\n- "lab/base"\n---\n')
    (root / "org/run/README.md").write_text("# run\n\nbase_model: lab/base\n")
    order = [{"model": model, "true_parent": parent} for model, parent in LINEAGE.items()]
    (root / "manifest.json").write_text(json.dumps({"order": order}))
    return root


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def hub(hub_folder: Path, cache: Path) -> Hub:
    return read_hub(hub_folder, cache, SETTINGS)


@pytest.fixture(scope="session")
def bench(hub: Hub, cache: Path) -> Bench:
    return Bench(hub, cache)
