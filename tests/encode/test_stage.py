"""Encoding a shard: nothing is published that does not decode to its source."""

from dataclasses import replace

import numpy as np
import pytest
import safetensors.numpy

import tstore_codecs
from support.hubs import bf16_weights, drifted
from support.stores import pack_file
from tstore.catalog import keys
from tstore.catalog.blobs import BlobLocation
from tstore.catalog.stored import StoredTensor
from tstore.encode.bases import worker_bases
from tstore.encode.shards import EncodeItem, EncodeSetup, plan_shards
from tstore.encode.stage import _same_bytes, encode_shard
from tstore.errors import VerificationError
from tstore.hub.location import HubLocation, HubTensor
from tstore.hub.reader import stat_source
from tstore.ids import content_hash, make_tensor_id, sha256
from tstore.objects import open_objects
from tstore.settings import TaskSettings

RNG = np.random.default_rng(3)
BASE = bf16_weights(RNG, 64, 64)
NEAR = drifted(RNG, BASE)
UNRELATED = bf16_weights(RNG, 64, 64)


@pytest.fixture(autouse=True)
def _forgetful_worker():
    worker_bases.cache_clear()


@pytest.fixture
def hub_tensor(tmp_path):
    """Puts an array into a source file of its own."""

    def make(name, array):
        path = tmp_path / "hub" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(array.tobytes())
        tensor_id = make_tensor_id(content_hash(array.tobytes()), "BF16", array.shape)
        location = HubLocation(stat_source(path), 0, array.nbytes)
        return HubTensor(tensor_id, sha256(array.tobytes()), location)

    return make


@pytest.fixture
def store(tmp_path):
    return tmp_path / "store"


def item(target, base=None, codec="tensorx", alone_nbytes=1 << 30):
    return EncodeItem(target, "BF16", codec if base else "zipnn", base, alone_nbytes)


def encode(store, *items):
    """Blob rows and failure rows of one shard of these items."""
    setup = EncodeSetup(str(store), "zipnn", 0)
    (shard,) = plan_shards(items, setup, TaskSettings())
    tables = encode_shard(shard, setup)
    return tables["blobs"].to_pylist(), tables["failures"].to_pylist()


def location(row):
    return BlobLocation(**{name: row[name] for name in BlobLocation.__dataclass_fields__})


def packs(store):
    return [info.key for info in open_objects(str(store)).list(keys.PACKS)]


def test_rows_say_where_the_blobs_are_and_how_to_decode_them(store, hub_tensor):
    base, near = hub_tensor("base", BASE), hub_tensor("near", NEAR)
    blobs, failures = encode(store, item(base), item(near, base))
    assert failures == []
    objects = open_objects(str(store))
    first, second = (location(row).read(objects) for row in blobs)
    decoded = tstore_codecs.decode(first)
    assert decoded.tobytes() == BASE.tobytes()
    assert tstore_codecs.decode(second, base=decoded).tobytes() == NEAR.tobytes()
    assert [(row["base_id"], row["codec"]) for row in blobs] == [
        (None, "zipnn"),
        (base.tensor_id, "tensorx"),
    ]
    assert [row["raw_nbytes"] for row in blobs] == [BASE.nbytes, NEAR.nbytes]
    assert len(second) < 0.2 * NEAR.nbytes


def test_the_pack_is_a_safetensors_file_named_by_its_sha256(store, hub_tensor):
    blobs, _ = encode(store, item(hub_tensor("base", BASE)))
    path = pack_file(store)
    assert path.stem == blobs[0]["pack"] == sha256(path.read_bytes())
    read = safetensors.numpy.load_file(path)
    assert tstore_codecs.decode(read[blobs[0]["tensor_id"]]).tobytes() == BASE.tobytes()


def test_the_same_shard_gives_the_same_pack(store, hub_tensor, tmp_path):
    base, near = hub_tensor("base", BASE), hub_tensor("near", NEAR)
    items = item(base), item(near, base), item(hub_tensor("other", UNRELATED))
    assert encode(store, *items) == encode(tmp_path / "other", *items)
    assert packs(store) == packs(tmp_path / "other")
    assert encode(store, *items)[1] == [], "a try that was cut short left the pack"
    assert len(packs(store)) == 1


def test_a_delta_that_does_not_pay_is_stored_alone(store, hub_tensor):
    base, other = hub_tensor("base", BASE), hub_tensor("other", UNRELATED)
    alone = len(tstore_codecs.encode(UNRELATED, dtype="BF16", codec="zipnn"))
    blobs, _ = encode(store, item(base), item(other, base, alone_nbytes=alone))
    row = blobs[1]
    assert (row["base_id"], row["codec"], row["nbytes"]) == (None, "zipnn", alone)
    blob = location(row).read(open_objects(str(store)))
    assert tstore_codecs.decode(blob).tobytes() == UNRELATED.tobytes()


def test_a_delta_of_a_stored_base(store, hub_tensor):
    base, near = hub_tensor("base", BASE), hub_tensor("near", NEAR)
    (row,), _ = encode(store, item(base))
    base.location.read()
    (delta,), _ = encode(store, item(near, StoredTensor(str(store), location(row))))
    assert delta["base_id"] == base.tensor_id
    blob = location(delta).read(open_objects(str(store)))
    assert tstore_codecs.decode(blob, base=BASE).tobytes() == NEAR.tobytes()


def test_a_stored_delta_can_become_a_base_and_the_other_way_round(store, hub_tensor):
    base, near = hub_tensor("base", BASE), hub_tensor("near", NEAR)
    (base_row, near_row), _ = encode(store, item(base), item(near, base))
    stored_base = StoredTensor(str(store), location(base_row))
    stored_near = StoredTensor(str(store), location(near_row), stored_base)
    turned, failures = encode(store, item(stored_near), item(stored_base, stored_near))
    assert not failures
    assert [row["base_id"] for row in turned] == [None, near.tensor_id]
    assert [row["sha256"] for row in turned] == [near.sha256, base.sha256]
    whole = StoredTensor(str(store), location(turned[0]))
    assert whole.read().tobytes() == NEAR.tobytes()
    delta = StoredTensor(str(store), location(turned[1]), whole)
    assert delta.read().tobytes() == BASE.tobytes()
    assert delta.read_pieces([(0, 8), (100, 300)]).tobytes() == (
        BASE.tobytes()[:8] + BASE.tobytes()[100:300]
    )


def test_a_stored_target_that_is_damaged_is_a_failure(store, hub_tensor):
    base, near = hub_tensor("base", BASE), hub_tensor("near", NEAR)
    (row, _), _ = encode(store, item(base), item(near))
    lost = StoredTensor(str(store), replace(location(row), pack="0" * 64))
    blobs, (failure,) = encode(store, item(near), item(lost))
    assert [blob["tensor_id"] for blob in blobs] == [near.tensor_id]
    assert (failure["tensor_id"], failure["reason"]) == (base.tensor_id, "BlobMissingError")


def test_packs_of_another_generation_have_another_name(store, hub_tensor):
    one = hub_tensor("base", BASE)
    names = set()
    for generation in ("", "run"):
        setup = EncodeSetup(str(store), "zipnn", 0, generation)
        (shard,) = plan_shards([item(one)], setup, TaskSettings())
        (row,) = encode_shard(shard, setup)["blobs"].to_pylist()
        assert StoredTensor(str(store), location(row)).read().tobytes() == BASE.tobytes()
        names.add(row["pack"])
    assert len(names) == 2


def test_against_a_damaged_stored_base_a_tensor_is_stored_alone(store, hub_tensor):
    base, near = hub_tensor("base", BASE), hub_tensor("near", NEAR)
    (row,), _ = encode(store, item(base))
    sound = location(row)
    for damaged in (
        replace(sound, pack="0" * 64),
        replace(sound, checksum="0" * 32),
        replace(sound, sha256="0" * 64),
    ):
        (row,), failures = encode(store, item(near, StoredTensor(str(store), damaged)))
        assert not failures
        assert (row["base_id"], row["codec"]) == (None, "zipnn")
        blob = location(row).read(open_objects(str(store)))
        assert tstore_codecs.decode(blob).tobytes() == NEAR.tobytes()


def test_a_damaged_pack_of_an_earlier_try_is_replaced(store, hub_tensor):
    target = hub_tensor("base", BASE)
    (row,), _ = encode(store, item(target))
    path = pack_file(store)
    sound = path.read_bytes()
    path.write_bytes(sound[:-1])
    assert encode(store, item(target))[0] == [row]
    assert path.read_bytes() == sound


@pytest.mark.parametrize("wrong", ["a flipped bit", "one byte less", "nothing"])
def test_wrong_codec_output_is_never_published(store, hub_tensor, monkeypatch, wrong):
    decode = tstore_codecs.decode

    def decode_wrongly(blob, **options):
        data = decode(blob, **options).copy()
        data[100] ^= 1
        return {"a flipped bit": data, "one byte less": data[:-1], "nothing": data[:0]}[wrong]

    monkeypatch.setattr(tstore_codecs, "decode", decode_wrongly)
    target = hub_tensor("base", BASE)
    with pytest.raises(VerificationError, match="nothing of it was published") as failure:
        encode(store, item(target))
    assert failure.value.tensor_id == target.tensor_id
    assert packs(store) == []


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 17])
def test_every_byte_counts_when_blobs_are_verified(size):
    data = np.arange(1, size + 1, dtype=np.uint8)
    assert _same_bytes(data, data.copy())
    assert not _same_bytes(data, np.append(data, np.uint8(0)))
    for at in range(size):
        other = data.copy()
        other[at] ^= 128
        assert not _same_bytes(data, other)


def test_one_wrong_blob_of_many_keeps_the_whole_pack_back(store, hub_tensor, monkeypatch):
    decode = tstore_codecs.decode

    def decode_wrongly(blob, *, base=None):
        data = decode(blob, base=base)
        return data if base is None else data[::-1].copy()

    monkeypatch.setattr(tstore_codecs, "decode", decode_wrongly)
    base, near = hub_tensor("base", BASE), hub_tensor("near", NEAR)
    with pytest.raises(VerificationError):
        encode(store, item(base), item(near, base))
    assert packs(store) == []


def overwrite(tensor, content):
    """New bytes in the source; the item still expects the old ones."""
    with open(tensor.location.source.source, "wb") as file:
        file.write(content)


@pytest.mark.parametrize("content", [b"", UNRELATED.tobytes()[:-2], UNRELATED.tobytes() + b"x"])
def test_a_changed_source_costs_only_itself(store, hub_tensor, content):
    base, other = hub_tensor("base", BASE), hub_tensor("other", UNRELATED)
    overwrite(other, content)
    blobs, failures = encode(store, item(base), item(other))
    assert [row["tensor_id"] for row in blobs] == [base.tensor_id]
    (failure,) = failures
    assert failure["tensor_id"] == other.tensor_id
    assert failure["source"] == other.location.source.source
    assert failure["reason"] == "SourceChangedError"


def test_other_bytes_behind_an_unchanged_tag_are_noticed(store, hub_tensor):
    other = hub_tensor("other", UNRELATED)
    overwrite(other, BASE.tobytes())
    source = stat_source(other.location.source.source)
    other = replace(other, location=replace(other.location, source=source))
    blobs, ((failure),) = encode(store, item(other))
    assert blobs == []
    assert failure["reason"] == "SourceChangedError"
    assert packs(store) == [], "an empty pack is not written"


def test_a_failed_base_is_blamed_on_the_file_of_the_base(store, hub_tensor):
    base, near = hub_tensor("base", BASE), hub_tensor("near", NEAR)
    overwrite(base, b"")
    blobs, failures = encode(store, item(near, base), item(hub_tensor("other", UNRELATED)))
    assert len(blobs) == 1
    assert [(row["tensor_id"], row["source"]) for row in failures] == [
        (near.tensor_id, base.location.source.source)
    ]


def test_the_bytes_of_the_hub_are_not_written_to(store, hub_tensor):
    base, near = hub_tensor("base", BASE), hub_tensor("near", NEAR)
    encode(store, item(base), item(near, base))
    for tensor, array in ((base, BASE), (near, NEAR)):
        assert tensor.location.read().tobytes() == array.tobytes()
