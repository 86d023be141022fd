"""What defeats planners that pair by name, order or model: here it costs next to nothing."""

import numpy as np
import pytest

from support.hubs import safetensors_bytes
from support.inline import ingest_inline
from support.stores import committed_rows

SHAPES = {f"layer.{i}.{part}.weight": shape for i in range(4) for part, shape in
          {"attn": (96, 96), "up": (192, 96), "down": (96, 192)}.items()}  # fmt: skip


def as_bf16(weights):
    return {
        name: (w.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        for name, w in weights.items()
    }


def pretrained(seed):
    rng = np.random.default_rng(seed)
    return {name: 0.05 * rng.standard_normal(shape) for name, shape in SHAPES.items()}


def tuned(weights, seed, step=2e-4):
    """Every weight moves a little, as training at a small learning rate does it."""
    rng = np.random.default_rng(seed)
    return {name: w + step * rng.standard_normal(w.shape) for name, w in weights.items()}


@pytest.fixture(scope="module")
def family():
    base = pretrained(0)
    models = {"lab/base": base}
    models |= {f"user{i}/tuned": tuned(base, i + 1) for i in range(4)}
    models["user0/second-stage"] = tuned(models["user0/tuned"], 9, step=5e-5)
    return models


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """Ingest models one after the other; raw and stored bytes of the tensors of each."""
    runs = {}

    def ingest(models, key, batches=None):
        if key in runs:
            return runs[key]
        root = tmp_path_factory.mktemp("trap")
        for batch in batches or [list(models)]:
            for repo in batch:
                folder = root / "hub" / repo
                folder.mkdir(parents=True)
                entries = {n: ("BF16", w) for n, w in as_bf16(models[repo]).items()}
                (folder / "model.safetensors").write_bytes(safetensors_bytes(entries))
            ingest_inline(root / "hub", root / "store")
        rows = committed_rows(root / "store")
        blobs = {blob["tensor_id"]: blob for blob in rows["blobs"].to_pylist()}
        seen, saved = set(), {}
        for row in rows["tensors"].to_pylist():
            cost = 0 if row["tensor_id"] in seen else blobs[row["tensor_id"]]["nbytes"]
            seen.add(row["tensor_id"])
            saved[row["repo"]] = saved.get(row["repo"], 0) + row["nbytes"] - cost
        runs[key] = saved
        return saved

    return ingest


def saving(saved, models):
    return sum(saved[repo] for repo in models)


@pytest.fixture(scope="module")
def plain(family, stored):
    saved = saving(stored(family, "plain"), family)
    raw = sum(2 * w.size for model in family.values() for w in model.values())
    assert saved > 0.6 * raw, "six models, five of them deltas"
    return saved


def test_an_unrelated_model_put_last(family, stored, plain):
    models = family | {"zz/unrelated": pretrained(77)}
    assert saving(stored(models, "unrelated last"), family) >= 0.97 * plain


def test_an_unrelated_model_that_comes_first(family, stored, plain):
    models = {"aa/unrelated": pretrained(77)} | family
    batches = [["aa/unrelated"], list(family)]
    assert saving(stored(models, "unrelated first", batches), family) >= 0.97 * plain


def test_all_tensors_renamed(family, stored, plain):
    """Each model has names of its own, given to other layers than in the base."""
    models = {}
    for number, (repo, model) in enumerate(family.items()):
        names = list(model)
        shuffled = np.random.default_rng(number).permutation(len(names))
        models[repo] = {f"m{number}.t{i}": model[names[i]] for i in shuffled}
    assert saving(stored(models, "renamed"), family) >= 0.97 * plain


def test_tensors_reordered_within_files(family, stored, plain):
    models = {}
    for number, (repo, model) in enumerate(family.items()):
        names = np.random.default_rng(number).permutation(list(model))
        models[repo] = {str(name): model[str(name)] for name in names}
    assert saving(stored(models, "reordered"), family) >= 0.97 * plain


def test_a_merge_of_two_parents(family, stored, plain):
    """It is near both, and may be the better base for others: what all save together counts."""
    one, two = family["user1/tuned"], family["user2/tuned"]
    merged = {name: (one[name] + two[name]) / 2 for name in one}
    models = family | {"merge/average": merged}
    share = saving(stored(models, "merge"), models) / len(models)
    assert share >= 0.97 * plain / len(family)


def test_models_that_arrive_one_by_one(family, stored, plain):
    """The first is stored before anything is known of the others."""
    saved = stored(family, "one by one", [[repo] for repo in family])
    assert saving(saved, family) >= 0.9 * plain


def test_layer_swapped_weights_are_refused(stored):
    """Weights of another layer have the same shape and exponents, and are worth nothing."""
    base = pretrained(0)
    names = [name for name in base if name.endswith("attn.weight")]
    swapped = {name: base[other] for name, other in zip(names, [*names[1:], names[0]], strict=True)}
    nudged = tuned(swapped, 3, step=0.05)  # as if trained anew: no relative of any layer
    saved = stored({"lab/base": base, "lab/anew": nudged}, "swapped")
    raw = sum(2 * w.size for w in nudged.values())
    assert saved["lab/anew"] < 0.36 * raw  # what bf16 saves without a base
