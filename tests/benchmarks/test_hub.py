"""A hub is read as it arrived: order, names, duplicates, cards, lineage."""

import shutil

import numpy as np
import pytest

from benchmarks.planning.hub import Hub, title
from benchmarks.planning.scan import read_hub
from support.hubs import bf16_weights, safetensors_bytes
from tstore.ids import content_hash, make_tensor_id
from tstore.sketch.statistics import plane_entropies, standalone_ratio
from tstore.sketch.tensorsketch import build

from .conftest import LINEAGE, SETTINGS, SHAPE


def test_models_arrive_as_the_manifest_says(hub):
    assert list(hub.contents) == list(LINEAGE)
    assert hub.parents["zoo/merge"] == ("org/tuned", "org/renamed")
    assert hub.parents["lab/base"] == ()


def test_without_a_manifest_models_arrive_by_name(hub_folder, tmp_path):
    root = shutil.copytree(hub_folder, tmp_path / "hub")
    (root / "manifest.json").unlink()
    found = read_hub(root, tmp_path / "cache", SETTINGS)
    assert list(found.contents) == sorted(LINEAGE)
    assert found.parents == {}


def test_models_that_the_manifest_forgot_come_last(hub_folder, tmp_path):
    root = shutil.copytree(hub_folder, tmp_path / "hub")
    (root / "a/new").mkdir(parents=True)
    weights = {"w": ("BF16", bf16_weights(np.random.default_rng(0), 8, 8))}
    (root / "a/new/model.safetensors").write_bytes(safetensors_bytes(weights))
    found = read_hub(root, tmp_path / "cache", SETTINGS)
    assert list(found.contents) == [*LINEAGE, "a/new"]


def test_cards_are_front_matter_only(hub):
    assert hub.cards == {"org/tuned": "lab/base", "org/renamed": "lab/base"}


def test_tensors_are_what_lies_in_the_files(hub):
    for tensor in hub.tensors.values():
        data = tensor.read()
        assert tensor.id == make_tensor_id(content_hash(data), tensor.dtype, tensor.shape)
        assert tensor.standalone == standalone_ratio(plane_entropies(data, "BF16"), data.size)
        if tensor.shape == SHAPE:
            assert tensor.sketch.tolist() == build(data, "BF16", SETTINGS).tolist()
        else:
            assert tensor.sketch is None


def test_duplicates_belong_to_the_model_that_came_first(hub):
    shared = hub.contents["lab/base"]["norm"]
    assert hub.contents["org/tuned"]["norm"] == shared
    assert hub.arrivals[shared] == ("lab/base", "norm")
    assert hub.only(["org/tuned", "lab/base"]).arrivals[shared] == ("org/tuned", "norm")
    assert hub.nbytes("org/tuned") == hub.nbytes("lab/base") == 4 * 2 * 64 * 512 + 2 * 64


def test_groups_hold_the_sketched_tensors_in_order(hub):
    (group,) = hub.groups
    assert title(group) == "BF16[64,512]"
    assert group.ids == tuple(i for i in hub.arrivals if hub.tensors[i].sketch is not None)
    assert len(group.ids) == 24
    assert (group.sketches[3] == hub.tensors[group.ids[3]].sketch).all()


def test_root_is_the_first_ancestor(hub):
    assert hub.root("zoo/merge") == "lab/base"
    assert hub.root("other/stranger") == "other/stranger"
    circle = Hub({"a": {}, "b": {}}, {}, {}, {"a": ("b",), "b": ("a",)}, SETTINGS)
    with pytest.raises(ValueError, match="without circles"):
        circle.root("a")


def test_a_changed_file_is_read_again(hub_folder, tmp_path):
    root, cache = shutil.copytree(hub_folder, tmp_path / "hub"), tmp_path / "cache"
    before = read_hub(root, cache, SETTINGS)
    assert read_hub(root, cache, SETTINGS).contents == before.contents
    n_kept = len(list(cache.rglob("*.npy")))
    weights = {"0.weight": ("BF16", bf16_weights(np.random.default_rng(1), *SHAPE))}
    (root / "zoo/merge/model.safetensors").write_bytes(safetensors_bytes(weights))
    after = read_hub(root, cache, SETTINGS)
    assert list(after.contents["zoo/merge"]) == ["0.weight"]
    assert after.contents["zoo/merge"]["0.weight"] not in before.tensors
    assert len(list(cache.rglob("*.npy"))) == n_kept + 1
