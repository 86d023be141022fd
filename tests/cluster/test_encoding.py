"""What is encoded, and in which order."""

import json

from support.inline import ingest_inline
from tstore.settings import KIB, TaskSettings


def clusters(store):
    """Of each pack, in order: the base of each delta, or the tensor itself."""
    for path in sorted((store / "packs").rglob("*.safetensors")):
        data = path.read_bytes()
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        flags = {name: json.loads(text) for name, text in header.pop("__metadata__").items()}
        offsets = [header[name]["data_offsets"][0] for name in header]
        assert offsets == sorted(offsets)
        yield [(flags[name].get("base", name), "base" in flags[name]) for name in header]


def test_a_base_comes_before_its_deltas_and_nothing_between_them(small_store):
    (pack,) = clusters(small_store)
    seen = []
    for cluster, is_delta in pack:
        if is_delta:
            assert seen[-1] == cluster
        else:
            assert cluster not in seen
            seen.append(cluster)
    assert sum(is_delta for _, is_delta in pack) >= 6


def test_small_shards_give_the_same_order(small_hub, small_store, tmp_path):
    store = tmp_path / "store"
    ingest_inline(small_hub, store, tasks=TaskSettings(encode_nbytes=100 * KIB))
    with_base = [pair for pack in clusters(store) for pair in pack]
    (one_pack,) = clusters(small_store)
    assert len(list(clusters(store))) > 3
    assert sorted(with_base) == sorted(one_pack)


def test_parts_of_a_cut_tensor_are_stored_and_restored(small_hub, tmp_path):
    from support.hubs import file_hashes
    from tstore.catalog import open_store
    from tstore.restore.describe import describe_repo, list_repos
    from tstore.restore.files import restore_repo

    store = tmp_path / "store"
    report = ingest_inline(small_hub, store, tasks=TaskSettings(tensor_extent_nbytes=10 * KIB))
    opened = open_store(str(store))
    for repo in list_repos(opened):
        restore_repo(opened, repo.repo, tmp_path / "out" / repo.repo)
    assert file_hashes(tmp_path / "out") == file_hashes(small_hub)
    tensors = describe_repo(opened, "lab/tuned").tensors
    shapes = [t.shape for t in tensors if t.name.startswith("layer.0.weight part ")]
    assert shapes == [(53, 96), (53, 96), (22, 96)]
    assert report.counts["tensors"] == 24, "a cut tensor counts once"
