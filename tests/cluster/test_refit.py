"""When a predictor is fitted again, and that nothing depends on what lies under models/."""

import json
import shutil

import numpy as np
import pytest

from support.hubs import bf16_weights, drifted, safetensors_bytes
from support.inline import ingest_inline
from support.stores import committed_rows
from tstore.catalog import keys

MODEL = keys.tensorpred("BF16", "ulprow")


def write_model(hub, repo, tensors):
    folder = hub / repo
    folder.mkdir(parents=True)
    entries = {name: ("BF16", tensor) for name, tensor in tensors.items()}
    (folder / "model.safetensors").write_bytes(safetensors_bytes(entries))


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """A base and a fine-tune; not to be changed."""
    hub = tmp_path_factory.mktemp("first") / "hub"
    rng = np.random.default_rng(0)
    base = {f"w{i}": bf16_weights(rng, 128, 96) for i in range(8)}
    write_model(hub, "lab/base", base)
    write_model(hub, "lab/one", {n: drifted(rng, w, 0.2) for n, w in base.items()})
    return hub


@pytest.fixture(scope="module")
def ingested(hub):
    """A store of the hub; not to be changed."""
    ingest_inline(hub, hub.parent / "store")
    return hub.parent / "store"


@pytest.fixture
def store(ingested, tmp_path):
    """A store of the hub to be changed."""
    return shutil.copytree(ingested, tmp_path / "store")


@pytest.fixture
def arrival(hub, tmp_path):
    """A hub with another fine-tune of the first model, no nearer than the one that is there."""
    rng = np.random.default_rng(1)
    raw = (hub / "lab/base/model.safetensors").read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    weights = np.frombuffer(raw[start:], np.uint16).reshape(8, 128, 96)
    tuned = {f"w{i}": drifted(rng, w, 0.2) for i, w in enumerate(weights)}
    write_model(tmp_path / "arrival", "lab/two", tuned)
    return tmp_path / "arrival"


def fitted(store):
    return json.loads((store / MODEL).read_text())


def n_pairs(store):
    return committed_rows(store)["pairs"].num_rows


def test_a_predictor_that_holds_is_kept(store, arrival):
    before, pairs = fitted(store), n_pairs(store)
    ingest_inline(arrival, store)
    assert fitted(store) == before
    assert n_pairs(store) == pairs


def test_a_store_of_one_model_learns_from_the_first_fine_tune(hub, tmp_path):
    store = tmp_path / "store"
    ingest_inline(hub, store, include=("lab/base/*",))
    before = fitted(store)
    ingest_inline(hub, store)
    assert fitted(store)["p_min"] < 0.1 < before["p_min"]
    blobs = committed_rows(store)["blobs"].to_pylist()
    assert sum(blob["base_id"] is not None for blob in blobs) == 8


def test_a_predictor_that_the_stored_deltas_contradict_is_fitted_again(store, arrival):
    wrong = fitted(store)
    wrong["model"]["constant"] += 0.2
    wrong["reports"]["plane-groups"]["mae"] = 0.001
    (store / MODEL).write_text(json.dumps(wrong))
    ingest_inline(arrival, store)  # still believes it: its own deltas come out much smaller
    pairs = n_pairs(store)
    write_model(arrival, "lab/three", {"w": bf16_weights(np.random.default_rng(5), 128, 96)})
    ingest_inline(arrival, store)
    assert n_pairs(store) > pairs
    assert abs(fitted(store)["model"]["constant"]) < 0.1


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"name": "prior"}', '{"name": 3, "model": [], "reports": 0}']
)
def test_a_garbled_predictor_is_made_again_from_the_pairs(store, arrival, text):
    before = fitted(store)
    (store / MODEL).write_text(text)
    ingest_inline(arrival, store)
    assert fitted(store) == before


def test_a_predictor_of_another_dtype_is_not_taken(store, arrival):
    before = fitted(store)
    (store / MODEL).write_text(json.dumps({**before, "dtype": "F32", "shares": [0.5, 0.5]}))
    ingest_inline(arrival, store)
    assert fitted(store) == before
