"""The sampling frame holds every byte, and blocks of relatives meet."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.hubs import bf16_weights, safetensors_bytes
from tstore.estimate.clusters import BLOCK_NBYTES, Cluster, Member, make_frame
from tstore.hub.reader import SourceFile
from tstore.hub.snapshot import list_hub
from tstore.ids import OPAQUE
from tstore.settings import TaskSettings


def member(nbytes, rows, start=0):
    return Member(SourceFile(f"/{nbytes}", start + nbytes, ""), start, nbytes, rows, 1)


@given(
    rows=st.integers(1, 2000),
    row=st.sampled_from([(), (1,), (7,), (384,), (3, 5), (70_000,)]),
    more=st.integers(0, 100),
)
def test_blocks_tile_the_smallest_member(rows, row, more):
    row_nbytes = 2 * int(np.prod(row, dtype=int))
    small, large = (
        member(rows * row_nbytes, rows, 8),
        member((rows + more) * row_nbytes, rows + more),
    )
    found = Cluster("BF16", row, (small, large))
    at = small.start
    for number in range(found.n_blocks):
        location, shape = found.block(small, number)
        other, same = found.block(large, number)
        assert location.start == at
        assert shape == same
        assert other.start - large.start == at - small.start
        assert location.nbytes == other.nbytes == 2 * int(np.prod(shape, dtype=int))
        assert location.nbytes <= BLOCK_NBYTES + max(
            row_nbytes if row_nbytes <= BLOCK_NBYTES else 2, 2
        )
        at += location.nbytes
    assert at == small.start + small.nbytes


def test_elements_that_are_no_whole_bytes_stay_together():
    found = Cluster("F4", (3,), (member(300_000, 7),))
    assert found.n_blocks == 1
    location, _ = found.block(found.members[0], 0)
    assert location.nbytes == 300_000


def test_frame_holds_every_byte_of_a_hub(small_hub):
    snapshot = list_hub(str(small_hub))
    frame = make_frame(snapshot.files, TaskSettings())
    sizes = [file.source.size for file in snapshot.files]
    assert frame.nbytes == sum(sizes) == sum(cluster.nbytes for cluster in frame.clusters)
    assert frame.files == len(sizes)
    tensors = [cluster for cluster in frame.clusters if cluster.dtype == "BF16"]
    assert [len(cluster.members) for cluster in tensors] == [4] * 6
    broken = [c for c in frame.clusters if c.dtype == OPAQUE and c.nbytes > 70_000]
    assert len(broken) == 1, "what cannot be parsed is opaque"


def test_prefixes_and_grown_vocabularies_share_a_place(tmp_path):
    rng = np.random.default_rng(0)
    models = {
        "a": {"h.0.w": bf16_weights(rng, 64, 64), "wte.weight": bf16_weights(rng, 100, 64)},
        "b": {"bert.h.0.w": bf16_weights(rng, 64, 64), "wte.weight": bf16_weights(rng, 110, 64)},
        "c": {"h.0.w": bf16_weights(rng, 64, 32), "wte.weight": bf16_weights(rng, 200, 64)},
    }
    for repo, tensors in models.items():
        (tmp_path / repo).mkdir()
        data = safetensors_bytes({name: ("BF16", w) for name, w in tensors.items()})
        (tmp_path / repo / "model.safetensors").write_bytes(data)
    frame = make_frame(list_hub(str(tmp_path)).files, TaskSettings())
    found = sorted(
        (cluster.row, sorted(m.rows for m in cluster.members))
        for cluster in frame.clusters
        if cluster.dtype != OPAQUE
    )
    assert found == [((32,), [64]), ((64,), [64, 64]), ((64,), [100, 110]), ((64,), [200])]


@pytest.mark.parametrize("gone", [True, False])
def test_files_that_cannot_be_read_are_left_out(small_hub, tmp_path, gone):
    source = tmp_path / "org/name"
    source.mkdir(parents=True)
    for path in (small_hub / "lab/base").iterdir():
        (source / path.name).write_bytes(path.read_bytes())
    snapshot = list_hub(str(tmp_path))
    if gone:
        (source / "model.safetensors").unlink()
    frame = make_frame(snapshot.files, TaskSettings())
    assert [name.endswith("model.safetensors") for name in frame.unreadable] == [True] * gone
