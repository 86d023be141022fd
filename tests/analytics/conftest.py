"""Two stores of one hub, which no test may change."""

import shutil

import numpy as np
import pytest

from support.hubs import bf16_weights, safetensors_bytes, write_small_hub
from support.inline import ingest_inline


@pytest.fixture(scope="session")
def stores(tmp_path_factory):
    """Folder of a hub and two stores of it.

    ``one`` has one run. ``two`` has a second one, for which the broken file was repaired and a
    repository came. ``hub`` is the hub of the first run, ``repaired`` the new file.
    """
    root = tmp_path_factory.mktemp("stores")
    write_small_hub(root / "live")
    ingest_inline(root / "live", root / "two")
    shutil.copytree(root / "live", root / "hub")
    shutil.copytree(root / "two", root / "one")
    weights = {"w": ("BF16", bf16_weights(np.random.default_rng(3), 64, 32))}
    (root / "repaired").write_bytes(safetensors_bytes(weights))
    shutil.copy(root / "repaired", root / "live/lab/broken/model.safetensors")
    shutil.copytree(root / "live/lab/tuned", root / "live/new/copy")
    ingest_inline(root / "live", root / "two")
    return root


@pytest.fixture
def hub(stores):
    return stores / "hub"


@pytest.fixture
def store(stores):
    return stores / "one"


@pytest.fixture
def grown(stores):
    return stores / "two"
