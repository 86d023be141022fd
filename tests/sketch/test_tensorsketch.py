"""TensorSketch: equal to the plain algorithm, unbiased on structured changes, exact distances."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tstore.ids import content_hash
from tstore.settings import SketchSettings
from tstore.sketch import tensorsketch
from tstore.sketch.kernels import accumulate
from tstore.sketch.tensorsketch import build, distance, hamming

SMALL = SketchSettings(depth=3, width=5, seed=9)
MASK64 = (1 << 64) - 1
STEP = 0x9E3779B97F4A7C15


def plain_mix64(x):
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK64
    return x ^ (x >> 31)


def plain_build(data, sketching):
    """Algorithm 1 bit by bit, with Python integers."""
    d, w = sketching.depth, sketching.width
    numbers = [plain_mix64((sketching.seed + STEP * i) & MASK64) for i in range(1, d * (w + 1) + 1)]
    keys, table = numbers[:d], numbers[d:]
    sketch = [[0] * w for _ in range(d)]
    for position, byte in enumerate(data):
        stripe, column = divmod(position // 8, w)
        for r in range(d):
            flip = plain_mix64((keys[r] + STEP * (stripe + 1)) & MASK64)
            bucket = (column + plain_mix64(flip ^ keys[r]) % w) % w
            signs = table[r * w + column] ^ flip
            for bit in range(8):
                if byte >> bit & 1:
                    sketch[r][bucket] += 1 if signs >> (position % 8 * 8 + bit) & 1 else -1
    return np.array(sketch).ravel()


@settings(deadline=None)  # the first example may compile
@given(data=st.binary(max_size=200), skip=st.integers(0, 7))
def test_equals_the_plain_algorithm(data, skip):
    buffer = np.frombuffer(bytes(skip) + data, np.uint8)[skip:]  # read-only and unaligned
    sketch = build(buffer, SMALL)
    assert sketch.dtype == np.int32
    assert sketch.tolist() == plain_build(data, SMALL).tolist()


def test_hash_family_of_the_default_settings_is_pinned():
    """Stored sketches must stay comparable: this may only change with the store format."""
    sketch = build(bytes(range(256)) * 64, SketchSettings())
    assert sketch.shape == (2048,)
    assert sketch[[0, 1, 1023, 1024, 2047]].tolist() == [14, 14, 2, -4, 8]
    assert content_hash(sketch.view(np.uint8)) == "9d8e93b6d03d4c1fd0df049e5f93100a"


@settings(deadline=None)  # the first example may compile
@given(cut=st.integers(0, 40))
def test_sketch_of_a_whole_is_the_sum_of_its_parts(cut):
    words = np.random.default_rng(3).integers(0, 1 << 64, 40, dtype=np.uint64)
    keys, table = tensorsketch._hash_family(SMALL.depth, SMALL.width, SMALL.seed)
    parts = np.zeros(table.shape, np.int64)
    accumulate(words[cut:], cut, table, keys, parts)
    accumulate(words[:cut], 0, table, keys, parts)
    assert parts.ravel().tolist() == build(words.tobytes(), SMALL).tolist()


def test_never_writes_to_the_callers_buffer():
    data = np.arange(1000, dtype=np.uint8)
    build(data, SMALL)
    assert data.flags.writeable
    assert data.tolist() == [i % 256 for i in range(1000)]


def test_data_that_could_overflow_a_bucket_is_refused():
    untouched = np.zeros((1 << 28) + 1, np.uint8)  # address space only
    with pytest.raises(OverflowError, match="expected at most 268435456 bytes"):
        build(untouched, SketchSettings(depth=1, width=1))


# --- structured differences ---------------------------------------------------------------------

N = 1 << 20  # bf16 elements
COLUMNS = 1024


def constant(difference, rng):
    difference[:] = 0x3F80 ^ 0x3F81 ^ 0x0100


def one_bit_everywhere(difference, rng):
    difference[:] = 1


def zeros_against_ones(difference, rng):
    difference[:] = 0xFFFF


def hot_column(difference, rng):
    difference.reshape(-1, COLUMNS)[:, 77] = rng.integers(1, 1 << 16, N // COLUMNS)


def three_hot_columns(difference, rng):
    rows = difference.reshape(-1, 4096)
    rows[:, [5, 700, 4001]] = rng.integers(1, 1 << 16, (len(rows), 3))


def hot_row(difference, rng):
    difference.reshape(-1, COLUMNS)[500] = rng.integers(1, 1 << 16, COLUMNS)


def single_bit(difference, rng):
    difference[123_456] = 0x0400


def random_bits(difference, rng):
    difference[:] = rng.integers(0, 1 << 16, N)


@pytest.mark.parametrize(
    "change",
    [
        constant,
        one_bit_everywhere,
        zeros_against_ones,
        hot_column,
        three_hot_columns,
        hot_row,
        single_bit,
        random_bits,
    ],
)
def test_estimate_is_unbiased(change):
    """Within 10 % on average over seeds, whatever the structure of the difference.

    One sketch has a standard error of sqrt(2 / (w d)) = 3 %, and a longer tail where few buckets
    are hit, hence the wider bound for single seeds.
    """
    rng = np.random.default_rng(1)
    tensor = rng.standard_normal(N, np.float32).view(np.uint32) >> 16
    tensor = tensor.astype(np.uint16)
    difference = np.zeros(N, np.uint16)
    change(difference, rng)
    true = int(np.bitwise_count(difference).sum())
    estimates = []
    for seed in range(6):
        sketching = SketchSettings(seed=seed)
        a = build(tensor.view(np.uint8), sketching)
        b = build((tensor ^ difference).view(np.uint8), sketching)
        estimates.append(hamming(a[None], b[None], sketching.depth)[0, 0] / true)
    assert min(estimates) > 0.8
    assert max(estimates) < 1.2
    assert 0.95 < np.mean(estimates) < 1.05


def test_a_few_bits_of_one_word_are_unbiased():
    """They share a bucket, so one estimate says little (0 to 16 for 4 bits); the mean is right."""
    a, b = np.zeros(512, np.uint64), np.zeros(512, np.uint64)
    b[99] = 0x8001_0000_0400_0020
    estimates = []
    for seed in range(600):
        sketching = SketchSettings(seed=seed, width=64)
        pair = [build(x.view(np.uint8), sketching)[None] for x in (a, b)]
        estimates.append(hamming(*pair, sketching.depth)[0, 0])
    assert 3.5 < np.mean(estimates) < 4.5


# --- distances ----------------------------------------------------------------------------------


def plain_hamming(a, b, depth):
    rows = (a.astype(int) - b.astype(int)).reshape(depth, -1)
    return np.median((rows**2).sum(axis=1))


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_hamming_equals_the_plain_formula(depth):
    rng = np.random.default_rng(depth)
    a = rng.integers(-(2**20), 2**20, (5, depth * 16)).astype(np.int32)
    b = rng.integers(-(2**20), 2**20, (7, depth * 16)).astype(np.int32)
    b[3] = a[2]
    expected = [[plain_hamming(x, y, depth) for y in b] for x in a]
    found = hamming(a, b, depth)
    assert found.tolist() == expected
    assert found[2, 3] == 0


def test_hamming_does_not_depend_on_the_block_size(monkeypatch):
    rng = np.random.default_rng(0)
    a = rng.integers(-1000, 1000, (9, 64)).astype(np.int32)
    whole = hamming(a, a, 2)
    monkeypatch.setattr(tensorsketch, "BLOCK", 4)
    assert hamming(a, a, 2).tolist() == whole.tolist()
    assert (np.diag(whole) == 0).all()


def test_distance_is_a_share_of_bits():
    a, b = np.zeros((1, 2), np.int32), np.array([[4, 4], [0, 0], [100, 100]], np.int32)
    assert distance(a, b, depth=2, nbytes=4).tolist() == [[0.5, 0.0, 1.0]]
    assert distance(a[:0], b, depth=2, nbytes=4).shape == (0, 3)
    with pytest.raises(ValueError, match="at least 1 byte"):
        distance(a, b, depth=2, nbytes=0)
