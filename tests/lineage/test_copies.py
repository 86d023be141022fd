"""Copies in another dtype, and which of the two came first."""

import numpy as np
import pytest

from support.hubs import safetensors_bytes
from support.inline import ingest_inline
from tstore.catalog import open_store
from tstore.lineage.report import find_lineage


def weights(rng):
    """f32 weights of a small model, each tensor of another scale."""
    return {
        f"h.{i}.w": rng.normal(0, 0.01 * 2 ** (i / 3), (64, 64)).astype("<f4") for i in range(10)
    }


def rounded(tensors):
    """To bf16, to nearest even."""
    found = {}
    for name, values in tensors.items():
        bits = values.view("<u4")
        found[name] = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")
    return found


def widened(tensors):
    return {name: (bits.astype("<u4") << 16).view("<f4") for name, bits in tensors.items()}


@pytest.fixture(scope="module")
def origins(tmp_path_factory):
    root = tmp_path_factory.mktemp("copies")
    rng = np.random.default_rng(0)
    first, other = weights(rng), weights(rng)
    models = {
        "lab/f32": ("F32", first),
        "lab/f32-to-bf16": ("BF16", rounded(first)),
        "zoo/bf16": ("BF16", rounded(other)),
        "zoo/bf16-to-f32": ("F32", widened(rounded(other))),
        "zoo/few": ("F32", dict(list(widened(rounded(other)).items())[:3])),
    }
    for repo, (dtype, tensors) in models.items():
        (root / "hub" / repo).mkdir(parents=True)
        data = safetensors_bytes({name: (dtype, w) for name, w in tensors.items()})
        (root / "hub" / repo / "model.safetensors").write_bytes(data)
    ingest_inline(root / "hub", root / "store")
    return {origin.model: origin for origin in find_lineage(open_store(str(root / "store")))}


def test_copies_find_one_another(origins):
    assert {name: origin.copy for name, origin in origins.items()} == {
        "lab/f32": "lab/f32-to-bf16",
        "lab/f32-to-bf16": "lab/f32",
        "zoo/bf16": "zoo/bf16-to-f32",
        "zoo/bf16-to-f32": "zoo/bf16",
        "zoo/few": None,
    }


def test_what_holds_more_is_the_parent(origins):
    parents = {
        name: [parent.model for parent in origin.parents if parent.inferred]
        for name, origin in origins.items()
    }
    assert parents["lab/f32-to-bf16"] == ["lab/f32"]
    assert parents["zoo/bf16-to-f32"] == ["zoo/bf16"]
    assert parents["lab/f32"] == parents["zoo/bf16"] == []
    assert origins["lab/f32-to-bf16"].parents[0].distance is None
