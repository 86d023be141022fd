"""A grown or cut vocabulary finds its base among shapes with other numbers of rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.hubs import bf16_weights, drifted, file_hashes, safetensors_bytes
from support.inline import ingest_inline
from support.stores import committed_rows, restore_all
from tstore.catalog import open_store
from tstore.catalog.blobs import resized
from tstore.plan.resized import MAX_GROWTH, kin_shapes
from tstore.restore.verify import verify

ROWS, WIDTH = 600, 64


@pytest.mark.parametrize("nbytes", [0, 3, 5, 9])
def test_a_base_is_cut_or_padded(nbytes):
    base = np.arange(1, 6, dtype=np.uint8)
    base.flags.writeable = False
    found = resized(base, nbytes)
    assert found.tolist() == (base.tolist() + [0] * 9)[:nbytes]


def test_kin_shapes_have_the_same_rows_and_about_as_many():
    keys = [
        ("BF16", (100, 8)),
        ("BF16", (104, 8)),
        ("BF16", (125, 8)),
        ("BF16", (126, 8)),
        ("BF16", (104, 9)),
        ("F16", (104, 8)),
        ("BF16", (104, 8, 1)),
        ("BF16", (104,)),
        ("BF16", (0, 8)),
    ]
    found = [[("BF16", (100, 8)), ("BF16", (104, 8)), ("BF16", (125, 8))]]
    assert kin_shapes(keys) == kin_shapes(reversed([*keys, *keys])) == found
    assert kin_shapes(keys[:1]) == []
    assert kin_shapes([]) == []


@given(rows=st.sets(st.integers(0, 500)))
def test_kin_are_disjoint_and_no_shape_is_far_from_another(rows):
    sets = kin_shapes([("F32", (count, 4)) for count in rows])
    counts = [[shape[0] for _, shape in keys] for keys in sets]
    assert all(len(near) > 1 and max(near) <= MAX_GROWTH * min(near) for near in counts)
    assert len({count for near in counts for count in near}) == sum(map(len, counts))


def write_model(root, repo, **tensors):
    folder = root / repo
    folder.mkdir(parents=True)
    entries = {name: ("BF16", tensor) for name, tensor in tensors.items()}
    (folder / "model.safetensors").write_bytes(safetensors_bytes(entries))


@pytest.fixture
def weights():
    return bf16_weights(np.random.default_rng(0), ROWS, WIDTH)


def blob_of(store, nbytes):
    (blob,) = [b for b in committed_rows(store)["blobs"].to_pylist() if b["raw_nbytes"] == nbytes]
    return blob


@pytest.mark.parametrize("rows", [ROWS + 7, ROWS - 7])
@pytest.mark.parametrize("first", ["base", "resized"])
def test_a_resized_embedding_is_a_delta_of_the_original(tmp_path, weights, rows, first):
    """In one run or two, whichever comes first; and it comes back byte for byte."""
    hub, store, rng = tmp_path / "hub", tmp_path / "store", np.random.default_rng(1)
    grown = np.concatenate([drifted(rng, weights, 0.1), bf16_weights(rng, 50, WIDTH)])[:rows]
    models = {"lab/base": weights, "lab/resized": grown}
    if first == "resized":
        models = dict(reversed(models.items()))
    for repo, tensor in models.items():
        write_model(hub, repo, embed=tensor)
        ingest_inline(hub, store)
    before, after = (blob_of(store, models[repo].nbytes) for repo in models)
    assert before["base_id"] is None
    assert after["base_id"] == before["tensor_id"]
    assert after["nbytes"] < 0.3 * after["raw_nbytes"]
    assert file_hashes(restore_all(store, tmp_path / "out")) == file_hashes(hub)
    assert not verify(open_store(str(store)), read_data=True).problems


def test_both_at_once(tmp_path, weights):
    hub, store, rng = tmp_path / "hub", tmp_path / "store", np.random.default_rng(1)
    grown = np.concatenate([drifted(rng, weights, 0.1), bf16_weights(rng, 8, WIDTH)])
    write_model(hub, "lab/base", embed=weights)
    write_model(hub, "lab/resized", embed=grown)
    write_model(hub, "other/model", embed=bf16_weights(rng, ROWS + 3, WIDTH))
    ingest_inline(hub, store)
    blobs = committed_rows(store)["blobs"].to_pylist()
    deltas = [blob for blob in blobs if blob["base_id"] is not None]
    assert len(deltas) == 1, "the third is unrelated, and of a pair one stays whole"
    plans = {row["tensor_id"]: row for row in committed_rows(store)["plans"].to_pylist()}
    assert plans[deltas[0]["tensor_id"]]["role"] == "delta"
    assert plans[deltas[0]["base_id"]]["role"] == "base"
    assert file_hashes(restore_all(store, tmp_path / "out")) == file_hashes(hub)


def test_a_base_of_deltas_stays_whole(tmp_path, weights):
    hub, store, rng = tmp_path / "hub", tmp_path / "store", np.random.default_rng(1)
    grown = np.concatenate([drifted(rng, weights, 0.1), bf16_weights(rng, 8, WIDTH)])
    write_model(hub, "lab/grown", embed=grown)
    write_model(hub, "lab/grown-tuned", embed=drifted(rng, grown, 0.1))
    ingest_inline(hub, store)
    write_model(hub, "lab/base", embed=weights)
    ingest_inline(hub, store)
    blobs = {b["tensor_id"]: b["base_id"] for b in committed_rows(store)["blobs"].to_pylist()}
    bases = {base for base in blobs.values() if base is not None}
    assert len(bases) == 1
    assert all(blobs[base] is None for base in bases)
    assert sum(base is not None for base in blobs.values()) == 2
    assert file_hashes(restore_all(store, tmp_path / "out")) == file_hashes(hub)


def test_many_sizes_of_one_parent_share_a_base(tmp_path):
    """No two have the same shape; one base serves all, as if they had."""
    rng = np.random.default_rng(2)
    parent = bf16_weights(rng, 260, WIDTH)
    hub, store = tmp_path / "hub", tmp_path / "store"
    for i in range(12):
        write_model(hub, f"user{i:02}/tuned", embed=drifted(rng, parent, 0.05)[: 240 + i])
    ingest_inline(hub, store)
    blobs = [b for b in committed_rows(store)["blobs"].to_pylist() if b["dtype"] == "BF16"]
    assert sum(blob["base_id"] is None for blob in blobs) == 1
    assert file_hashes(restore_all(store, tmp_path / "out")) == file_hashes(hub)
