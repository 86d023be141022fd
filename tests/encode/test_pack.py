"""Packs are safetensors files, named by their content."""

import json

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st

import tstore_codecs
from tstore.encode.pack import PackEntry, build_pack
from tstore.ids import content_hash, make_tensor_id, sha256

blobs = st.lists(st.binary(max_size=40), max_size=6)


def entries_of(contents):
    return [
        PackEntry(
            tensor_id=make_tensor_id(f"{number:032x}", "BF16", (number, 2)),
            blob=blob,
            codec="zipnn",
            base_id="base" if number % 2 else None,
            checksum=content_hash(blob),
        )
        for number, blob in enumerate(contents)
    ]


@given(contents=blobs)
def test_any_safetensors_reader_opens_a_pack(contents):
    entries = entries_of(contents)
    pack = build_pack(entries)
    data = b"".join(pack.parts)
    read = safetensors.numpy.load(data)
    assert read.keys() == {entry.tensor_id for entry in entries}
    for entry, offset in zip(entries, pack.offsets, strict=True):
        assert read[entry.tensor_id].dtype == np.uint8
        assert read[entry.tensor_id].tobytes() == entry.blob
        assert data[offset : offset + len(entry.blob)] == entry.blob


@given(contents=blobs)
def test_the_name_is_the_sha256_and_the_same_entries_give_the_same_pack(contents):
    pack = build_pack(entries_of(contents))
    assert pack.pack_id == sha256(b"".join(pack.parts))
    assert pack == build_pack(entries_of(contents))


def test_blobs_start_aligned_behind_the_header():
    for count in range(1, 9):
        assert build_pack(entries_of([b"x"] * count)).offsets[0] % 8 == 0


def test_flags_say_how_to_decode(tmp_path):
    entries = entries_of([b"one", b"two"])
    path = tmp_path / "pack.safetensors"
    path.write_bytes(b"".join(build_pack(entries).parts))
    with safetensors.safe_open(path, "np") as opened:
        flags = {name: json.loads(text) for name, text in opened.metadata().items()}
    common = {"codec": "zipnn", "format": tstore_codecs.FORMAT_VERSION}
    assert flags == {
        entries[0].tensor_id: {**common, "checksum": entries[0].checksum},
        entries[1].tensor_id: {**common, "checksum": entries[1].checksum, "base": "base"},
    }


@pytest.mark.parametrize("count", [0, 1])
def test_small_packs(count):
    assert (
        len(safetensors.numpy.load(b"".join(build_pack(entries_of([b""] * count)).parts))) == count
    )
