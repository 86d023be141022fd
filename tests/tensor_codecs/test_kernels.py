"""Each compiled kernel against its plain twin."""

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from tensor_codecs import reference
from tensor_codecs.samples import weights
from tstore_codecs.kernels.checksum import xxh64
from tstore_codecs.kernels.freqs import histogram
from tstore_codecs.kernels.planes import has_zero_run, merge_planes, split_planes


@pytest.mark.parametrize("n", [*range(100), 1023, 4096])
def test_xxh64_is_xxh64(n: int) -> None:
    data = np.random.default_rng(n).integers(0, 256, n + 1, np.uint8)
    for part in (data[:n], data[1 : n + 1]):
        assert int(xxh64(part)) == xxhash.xxh64_intdigest(part.tobytes())


@pytest.mark.parametrize("width", [1, 2, 4, 8])
@pytest.mark.parametrize("rotate", [False, True])
@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 300])
def test_planes_match_the_plain_ones(width: int, rotate: bool, n: int) -> None:
    data = np.random.default_rng(n).integers(0, 256, n * width, np.uint8)
    words = data.view(f"<u{width}")
    planes = np.empty((width, n), np.uint8)
    split_planes(words, rotate, planes)
    assert [plane.tobytes() for plane in planes] == reference.split_planes(
        data.tobytes(), width, rotate
    )
    merged = np.empty_like(words)
    merge_planes(planes, rotate, merged)
    assert merged.tobytes() == data.tobytes()


def test_rotation_gives_the_exponent_a_plane_of_its_own() -> None:
    words = weights("BF16", 2000).view("<u2")
    planes = np.empty((2, words.size), np.uint8)
    split_planes(words, True, planes)
    assert np.array_equal(planes[1], words >> 7 & 255)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from((0, 0, 0, 1)), max_size=60), st.integers(1, 12))
def test_zero_runs_match_the_plain_search(values: list[int], length: int) -> None:
    plane = np.array(values, np.uint8)
    assert has_zero_run(plane, length) == (bytes(length) in plane.tobytes())


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=300))
def test_histogram_matches_bincount(data: bytes) -> None:
    symbols = np.frombuffer(data, np.uint8)
    counts = np.full(256, -1, np.int64)
    histogram(symbols, counts)
    assert np.array_equal(counts, np.bincount(symbols, minlength=256))
