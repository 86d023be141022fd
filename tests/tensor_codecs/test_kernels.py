"""Each compiled kernel against its plain twin."""

from pathlib import Path

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from tensor_codecs import reference
from tensor_codecs.reference_rans import Table
from tensor_codecs.samples import ByteArray, special_floats, weights
from tstore.plan.flexsplit.search import improve
from tstore.predict.kernels import add_interpolated
from tstore.sketch.kernels import accumulate
from tstore_codecs import model
from tstore_codecs.buffers import words_of
from tstore_codecs.dtypes import DTYPES
from tstore_codecs.kernels import residuals
from tstore_codecs.kernels.checksum import xxh64
from tstore_codecs.kernels.compiled import sources_digest
from tstore_codecs.kernels.freqs import histogram
from tstore_codecs.kernels.ordered import Contexts, pick_tables
from tstore_codecs.kernels.planes import (
    has_zero_run,
    is_noise,
    merge_planes,
    merge_sparse,
    split_planes,
    split_sparse,
    zero_share,
)

ONE_OF_EACH_KIND = ("F8_E4M3", "F8_E5M2", "I8", "BF16", "U16", "F32", "I32", "F64", "I64")


@pytest.mark.parametrize(
    "kernel", [xxh64, accumulate, add_interpolated, improve], ids=lambda kernel: kernel.__name__
)
def test_compiled_kernels_on_disk_depend_on_all_sources_of_their_folder(kernel) -> None:
    """A wheel gives all files one time, and constants and tuples come from other files."""
    stamp = kernel._cache._cache_file._source_stamp
    assert stamp[1] == sources_digest(Path(kernel.py_func.__code__.co_filename).parent)


def test_a_digest_changes_with_any_module(tmp_path: Path) -> None:
    for name in ("one.py", "two.py"):
        (tmp_path / name).write_text("x = 1")
    before = sources_digest(tmp_path)
    sources_digest.cache_clear()
    (tmp_path / "two.py").write_text("x = 2")
    assert sources_digest(tmp_path) != before


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


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from((0, 0, 0, 0, 1, 255)), max_size=100))
def test_sparse_planes_match_the_plain_ones(content: list[int]) -> None:
    plane = np.array(content, np.uint8)
    masks = np.full(-(-plane.size // 8), 99, np.uint8)
    values = np.full(plane.size + 8, 99, np.uint8)
    count = split_sparse(plane, masks, values)
    assert values[:count].tobytes() == bytes(byte for byte in content if byte)
    assert masks.tobytes() == np.packbits(plane != 0, bitorder="little").tobytes()
    back = np.full_like(plane, 99)
    merge_sparse(masks, values, back)
    assert back.tobytes() == plane.tobytes()


def test_the_share_of_zeros_is_near_that_of_the_whole() -> None:
    plane = (np.random.default_rng(0).random(1 << 18) > 0.9).astype(np.uint8)
    assert abs(zero_share(plane) - 0.9) < 0.01


@pytest.mark.parametrize(
    ("bits_saved", "min_gain", "noisy"),
    [(0.0, 1 / 128, True), (0.02, 1 / 128, True), (0.07, 1 / 128, False), (0.02, 1 / 512, False)],
)
def test_noise_is_what_saves_next_to_nothing(
    bits_saved: float, min_gain: float, noisy: bool
) -> None:
    # One bit of each byte is 1 with probability p; it then has 1 - bits_saved bits of entropy.
    p = np.linspace(0.01, 0.5, 1000)
    entropies = -p * np.log2(p) - (1 - p) * np.log2(1 - p)
    own = p[np.argmin(np.abs(1 - entropies - bits_saved))]
    rng = np.random.default_rng(0)
    plane = rng.integers(0, 128, 1 << 18, np.uint8) | (rng.random(1 << 18) < own).astype("u1") << 7
    assert is_noise(plane, min_gain) == noisy


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=300))
def test_histogram_matches_bincount(data: bytes) -> None:
    symbols = np.frombuffer(data, np.uint8)
    counts = np.full(256, -1, np.int64)
    histogram(symbols, counts)
    assert np.array_equal(counts, np.bincount(symbols, minlength=256))


def elements(dtype: str) -> tuple[ByteArray, ByteArray]:
    """Return targets and bases: relatives, strangers, all pairs of special values."""
    width = DTYPES[dtype].width
    units = special_floats(width).view(f"<u{width}")
    ours, theirs = (grid.reshape(-1).view(np.uint8) for grid in np.meshgrid(units, units))
    rng = np.random.default_rng(width)
    # Changes of every bit length, on both sides of zero.
    near = rng.integers(0, 1 << 63, 600, np.uint64) >> rng.integers(0, 63, 600, np.uint64)
    base = rng.integers(0, 256, 600 * width, np.uint8)
    moved = base.view(f"<u{width}") + np.concatenate((near[:300], -near[300:])).astype(f"<u{width}")
    target = np.concatenate((ours, moved.view(np.uint8), weights(dtype, 200 * width, step=1e-3)))
    return target, np.concatenate((theirs, base, weights(dtype, 200 * width)))


@pytest.mark.parametrize("dtype", ONE_OF_EACH_KIND)
@pytest.mark.parametrize("shift", [residuals.MSB_SHIFT, residuals.ULP_SHIFT])
def test_residuals_match_the_plain_ones(dtype: str, shift: int) -> None:
    kind, bits = DTYPES[dtype], 8 * DTYPES[dtype].width
    target, base = elements(dtype)
    ours, theirs = (words_of(side, kind) for side in (target, base))
    own = model.elements_of(kind, shift)
    symbols = np.empty(ours.size, np.uint8)
    rest = np.full(ours.size, own.half)
    raw = np.empty((own.passes, ours.size), np.uint16)
    residuals.split(ours, theirs, own.half, own.floats, own.shift, symbols, rest, raw)
    highest = 0
    for i, (u, b) in enumerate(zip(ours.tolist(), theirs.tolist(), strict=True)):
        places = [reference.key(v, bits, kind.signed_float) for v in (u, b)]
        symbol, (nbits, value) = reference.split_change(
            (places[0] - places[1]) % (1 << bits), bits, shift
        )
        highest = max(highest, symbol)
        words = raw[:, i].tolist()
        found = sum(word << 16 * k for k, word in enumerate(words))
        assert (int(symbols[i]), found, nbits) == (
            symbol, value, reference.n_raw_bits(symbol, shift),
        )  # fmt: skip
        assert reference.merge_change(symbol, value, bits, shift) == (places[0] - places[1]) % (
            1 << bits
        )
        assert reference.unkey(places[0], bits, kind.signed_float) == u
    assert highest == (2 * bits + 1 if shift == residuals.MSB_SHIFT else 4 * bits - 5)
    back = np.empty_like(ours)
    residuals.merge(symbols, raw, theirs, own.half, own.floats, own.shift, rest, back)
    assert np.array_equal(back, ours)


@pytest.mark.parametrize("dtype", ONE_OF_EACH_KIND)
@pytest.mark.parametrize("low", [0, 1, 5, 100])
@pytest.mark.parametrize("row", [0, 1, 7, 130])
def test_tables_of_elements_match_the_plain_choice(dtype: str, low: int, row: int) -> None:
    kind, first, n = DTYPES[dtype], 1000, 500
    base = words_of(weights(dtype, n * kind.width), kind)
    rng = np.random.default_rng(low)
    n_classes = 3 if row else 1
    choice = rng.integers(0, 60, 32 * n_classes, np.uint8)
    classes = rng.integers(0, n_classes, (first + n) // row + 1 if row else 1, np.uint8)
    contexts = Contexts(model.context_shift(kind), low, row or 1 << 40, classes, choice)
    fields, tables = np.empty((2, n), np.uint8)
    own = model.elements_of(kind, residuals.ULP_SHIFT)
    pick_tables(base, first, own, contexts, fields, tables)
    named = [Table({i: 1}, {}, []) for i in range(60)]
    plain = reference.Model(named, low, row, choice.tobytes(), classes.tobytes())
    for i, b in enumerate(base.tolist()):
        expected = reference.table_of(b, first + i, kind.wire_id, plain)
        assert named[int(tables[i])] is expected
