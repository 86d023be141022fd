"""Entropies of byte planes against a plain count."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tstore.sketch import statistics
from tstore.sketch.statistics import (
    FRAME_NBYTES,
    TABLE_NBYTES,
    plane_entropies,
    standalone_ratio,
)
from tstore_codecs.errors import UnsupportedDtypeError

WIDTHS = {"BF16": 2, "F16": 2, "F32": 4, "F64": 8, "F8_E4M3": 1}


def plain_entropies(data, width, rotate):
    bits = 8 * width
    planes = [Counter() for _ in range(width)]
    n = len(data) // width
    for i in range(n):
        unit = int.from_bytes(data[i * width : (i + 1) * width], "little")
        if rotate:
            unit = (unit << 1 | unit >> (bits - 1)) & ((1 << bits) - 1)
        for plane in range(width):
            planes[plane][unit >> (8 * plane) & 0xFF] += 1
    return [-sum(c / n * math.log2(c / n) for c in counts.values()) for counts in planes]


@settings(deadline=None)  # the first example may compile
@given(data=st.binary(max_size=300), dtype=st.sampled_from(sorted(WIDTHS)))
def test_floats_equal_the_plain_count(data, dtype):
    expected = plain_entropies(data, WIDTHS[dtype], rotate=True)
    found = plane_entropies(data, dtype)
    assert found.dtype == np.float32
    assert found.tolist() == pytest.approx(expected, abs=1e-5)


@settings(deadline=None)  # the first example may compile
@given(data=st.binary(max_size=300))
def test_integers_are_not_rotated(data):
    expected = plain_entropies(data, 2, rotate=False)
    assert plane_entropies(data, "I16").tolist() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("dtype", ["OPAQUE", "F4", "U8", "BOOL"])
def test_bytes_and_packed_types_have_one_plane(dtype):
    assert plane_entropies(bytes(range(256)), dtype).tolist() == [8.0]


def test_unknown_dtype_is_refused():
    with pytest.raises(UnsupportedDtypeError):
        plane_entropies(b"12345678", "F7")


def test_sample_reaches_from_the_first_to_the_last_block():
    block = statistics.SAMPLE_BLOCK_NBYTES
    n_blocks = 40 * statistics.SAMPLE_BLOCKS
    data = np.repeat(np.arange(n_blocks) % 251, block).astype(np.uint8)
    sample = statistics._sample(data)
    assert sample.size == statistics.SAMPLE_BLOCKS * block
    assert sample[0] == data[0]
    assert sample[-1] == data[-1]
    assert len(set(sample[::block].tolist())) > statistics.SAMPLE_BLOCKS // 2


def test_sampled_entropy_is_close_to_the_whole():
    rng = np.random.default_rng(0)
    weights = rng.standard_normal(1 << 19).astype(np.float32) * 0.02
    bf16 = (weights.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    whole = plain_entropies(bf16.tobytes(), 2, rotate=True)
    assert plane_entropies(bf16, "BF16").tolist() == pytest.approx(whole, abs=0.02)


def test_standalone_ratio():
    entropies = np.array([8.0, 2.0], np.float32)
    assert standalone_ratio(entropies, 1 << 30) == pytest.approx(0.625, abs=1e-6)
    assert standalone_ratio(entropies, 64) == pytest.approx((64 + FRAME_NBYTES) / 64)
    small = (500 + 125 + TABLE_NBYTES + FRAME_NBYTES) / 1000
    assert standalone_ratio(entropies, 1000) == pytest.approx(small)
