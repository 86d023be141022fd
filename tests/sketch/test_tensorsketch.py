"""TensorSketch: equal to the plain algorithm, unbiased on structured changes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tstore.ids import content_hash
from tstore.settings import SketchSettings
from tstore.sketch import tensorsketch
from tstore.sketch.distances import distance, group_distances, group_hamming, pair_distances
from tstore.sketch.kernels import LANES, accumulate
from tstore.sketch.layout import SketchLayout
from tstore.sketch.tensorsketch import build
from tstore_codecs.dtypes import dtype_by_name

SMALL = SketchSettings(depth=3, width=32, seed=9)
MASK64 = (1 << 64) - 1
STEP = 0x9E3779B97F4A7C15
DTYPES = ("U8", "BF16", "F32", "F64")


def plain_mix64(x):
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK64
    return x ^ (x >> 31)


def plain_build(data, dtype, sketching):
    """Algorithm 1 bit by bit, with Python integers; (planes, depth, buckets) flattened."""
    d, columns = sketching.depth, sketching.width // 16
    width = dtype_by_name(dtype).width
    numbers = [
        plain_mix64((sketching.seed + STEP * i) & MASK64) for i in range(1, d * (columns + 1) + 1)
    ]
    keys, table = numbers[:d], numbers[d:]
    planes = 2 * width
    elements = 8 // width  # per word
    sketch = np.zeros((planes, d, elements, columns), int)
    for position in range(8 * len(data)):
        if not data[position // 8] >> position % 8 & 1:
            continue
        word, bit = divmod(position, 64)
        stripe, column = divmod(word, columns)
        step = STEP * (stripe + 1)
        turn = plain_mix64((keys[0] ^ step) & MASK64) % elements
        bit = (bit + turn * 8 * width) % 64
        element, nibble = divmod(bit // 4, planes)
        for r in range(d):
            flip = plain_mix64((keys[r] + step) & MASK64)
            bucket = (column + plain_mix64(flip ^ keys[r]) % columns) % columns
            sign = 1 if (table[r * columns + column] ^ flip) >> bit & 1 else -1
            sketch[nibble, r, element, bucket] += sign
    return sketch.ravel()


@settings(deadline=None)  # the first example may compile
@given(data=st.binary(max_size=200), skip=st.integers(0, 7), dtype=st.sampled_from(DTYPES))
def test_equals_the_plain_algorithm(data, skip, dtype):
    buffer = np.frombuffer(bytes(skip) + data, np.uint8)[skip:]  # read-only and unaligned
    sketch = build(buffer, dtype, SMALL)
    assert sketch.dtype == np.int16
    assert sketch.tolist() == plain_build(data, dtype, SMALL).tolist()


@pytest.mark.parametrize("dtype", DTYPES)
def test_many_stripes_equal_the_plain_algorithm(dtype):
    """Sums move from bytes to wide counters on the way, and all bits set strain them most."""
    data = b"\xff" * 1700 + np.random.default_rng(0).bytes(400)  # 131 stripes of 16 bytes
    assert build(data, dtype, SMALL).tolist() == plain_build(data, dtype, SMALL).tolist()


def test_hash_family_of_the_default_settings_is_pinned():
    """Stored sketches must stay comparable: this may only change with the store format."""
    sketch = build(bytes(range(256)) * 64, "BF16", SketchSettings())
    assert sketch.shape == (4096,)
    assert sketch[[0, 1, 1023, 1024, 4095]].tolist() == [-4, -2, 2, 7, 6]
    assert content_hash(sketch.view(np.uint8)) == "deeccbd570be98717a1f3d5775546810"


@settings(deadline=None)  # the first example may compile
@given(cut=st.integers(0, 20))
def test_sketch_of_a_whole_is_the_sum_of_its_parts(cut):
    columns = SMALL.width // LANES
    words = np.random.default_rng(3).integers(0, 1 << 64, 20 * columns, dtype=np.uint64)
    keys, table = tensorsketch._hash_family(SMALL.depth, columns, SMALL.seed)
    whole, parts = (np.zeros((SMALL.depth, LANES, columns), np.int64) for _ in range(2))
    accumulate(words, 0, 16, table, keys, whole)
    accumulate(words[cut * columns :], cut, 16, table, keys, parts)
    accumulate(words[: cut * columns], 0, 16, table, keys, parts)
    assert parts.tolist() == whole.tolist()


def test_never_writes_to_the_callers_buffer():
    data = np.arange(1000, dtype=np.uint8)
    build(data, "F32", SMALL)
    assert data.flags.writeable
    assert data.tolist() == [i % 256 for i in range(1000)]


def test_sums_that_int16_cannot_hold_are_clipped(monkeypatch):
    def huge(words, first_stripe, element_bits, table, keys, out):
        out[:] = 40_000
        out[0, 0, 0] = -40_000

    monkeypatch.setattr(tensorsketch, "accumulate", huge)
    sketch = build(bytes(64), "U8", SMALL)
    assert sorted(set(sketch.tolist())) == [-32768, 32767]


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


def a_bit_of_a_column(difference, rng):
    difference.reshape(-1, COLUMNS)[:, 300] = 0x0040


CHANGES = [
    constant,
    one_bit_everywhere,
    zeros_against_ones,
    hot_column,
    a_bit_of_a_column,
    three_hot_columns,
    hot_row,
    single_bit,
    random_bits,
]


@pytest.mark.parametrize("change", CHANGES)
def test_estimate_is_unbiased(change):
    """Within 10 % for each seed, and nearer on average, whatever the structure."""
    rng = np.random.default_rng(1)
    tensor = rng.standard_normal(N, np.float32).view(np.uint32) >> 16
    tensor = tensor.astype(np.uint16)
    difference = np.zeros(N, np.uint16)
    change(difference, rng)
    true = int(np.bitwise_count(difference).sum())
    estimates = []
    for seed in range(6):
        sketching = SketchSettings(seed=seed)
        layout = SketchLayout.of("BF16", sketching)
        a = build(tensor.view(np.uint8), "BF16", sketching)
        b = build((tensor ^ difference).view(np.uint8), "BF16", sketching)
        estimates.append(group_hamming(a[None], b[None], layout).sum() / true)
    assert min(estimates) > 0.9
    assert max(estimates) < 1.1
    assert 0.95 < np.mean(estimates) < 1.05


def test_the_bits_of_one_element_are_unbiased():
    """Those of one nibble share a bucket, so one estimate says little; the mean is right."""
    a, b = np.zeros(2048, np.uint16), np.zeros(2048, np.uint16)
    b[99] = 0xFFFF
    estimates = []
    for seed in range(400):
        sketching = SketchSettings(seed=seed, width=64)
        layout = SketchLayout.of("BF16", sketching)
        pair = [build(x.view(np.uint8), "BF16", sketching)[None] for x in (a, b)]
        estimates.append(group_hamming(*pair, layout).sum())
    assert 15 < np.mean(estimates) < 17


@pytest.mark.parametrize(
    ("dtype", "element", "expected"),
    [
        ("BF16", 0x8000, [0, 0, 0, 1]),
        ("BF16", 0x0300, [0, 0, 2, 0]),
        ("BF16", 0x00F0, [0, 4, 0, 0]),
        ("BF16", 0x0001, [1, 0, 0, 0]),
        ("F32", 0x8000_0000, [0, 0, 0, 0, 1]),
        ("F32", 0x0110_0000, [0, 0, 1, 1, 0]),
        ("F32", 0x0008_8001, [1, 2, 0, 0, 0]),
        ("F64", 0x8010_1000_0000_0800, [1, 1, 0, 1, 1]),
        ("F8_E4M3", 0x81, [1, 1]),
    ],
)
def test_bits_count_in_the_group_of_their_significance(dtype, element, expected):
    """Spread over the tensor, each flipped bit is found in its own plane group."""
    width = dtype_by_name(dtype).width
    n = 1 << 14
    tensor = np.random.default_rng(5).integers(0, 256, (n, width), dtype=np.uint8)
    changed = tensor.copy()
    changed[::64] ^= np.frombuffer(element.to_bytes(width, "little"), np.uint8)
    sketching = SketchSettings()
    layout = SketchLayout.of(dtype, sketching)
    a, b = (build(x, dtype, sketching)[None] for x in (tensor, changed))
    found = group_hamming(a, b, layout)[:, 0, 0] / (n / 64)
    assert (found[np.array(expected) == 0] == 0).all()
    assert found == pytest.approx(expected, rel=0.25)


# --- distances ----------------------------------------------------------------------------------


def plain_group_hamming(a, b, layout):
    planes = (a.astype(int) - b.astype(int)).reshape(layout.n_planes, layout.depth, -1)
    groups, first = [], 0
    for count in layout.group_planes:
        rows = (planes[first : first + count] ** 2).sum(axis=(0, 2))
        groups.append(np.median(rows))
        first += count
    return groups


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
@pytest.mark.parametrize("element_nbytes", [1, 2, 4, 8])
@pytest.mark.parametrize("limit", [2**15, 900, 700, 60])  # both float types, and where they meet
def test_hamming_equals_the_plain_formula(depth, element_nbytes, limit):
    rng = np.random.default_rng(depth)
    layout = SketchLayout(depth, 64, element_nbytes)
    a = rng.integers(-limit, limit, (5, depth * 64)).astype(np.int16)
    b = rng.integers(-limit, limit, (7, depth * 64)).astype(np.int16)
    b[3] = a[2]
    expected = np.moveaxis([[plain_group_hamming(x, y, layout) for y in b] for x in a], 2, 0)
    found = group_hamming(a, b, layout)
    assert found.tolist() == expected.tolist()
    assert (found[:, 2, 3] == 0).all()


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("element_nbytes", [1, 2, 4, 8])
def test_single_pairs_equal_the_matrix_of_all(depth, element_nbytes):
    layout = SketchLayout(depth, 64, element_nbytes)
    rng = np.random.default_rng(depth)
    sketches = rng.integers(-(2**15), 2**15, (9, depth * 64)).astype(np.int16)
    a, b = rng.integers(0, 9, (2, 40))
    nbytes = rng.integers(1 << 30, 1 << 40, 9)
    everything = group_distances(sketches, sketches, layout, nbytes)
    found = pair_distances(sketches, a, b, layout, nbytes[a])
    assert found.tolist() == everything[:, a, b].tolist()
    assert (found[:, a == b] == 0).all()


def test_hamming_does_not_depend_on_the_block_size(monkeypatch):
    layout = SketchLayout(2, 32, 2)
    a = np.random.default_rng(0).integers(-1000, 1000, (9, 64)).astype(np.int16)
    whole = group_hamming(a, a, layout)
    monkeypatch.setattr("tstore.sketch.distances.BLOCK", 4)
    assert group_hamming(a, a, layout).tolist() == whole.tolist()
    assert (np.diagonal(whole, axis1=1, axis2=2) == 0).all()


def test_distance_is_a_share_of_bits():
    layout = SketchLayout(1, 16, 1)  # two planes of eight numbers
    a = np.zeros((1, 16), np.int16)
    b = np.zeros((3, 16), np.int16)
    b[1, 0], b[2, 8] = 3, 100
    groups = group_distances(a, b, layout, nbytes=4)
    assert groups[:, 0].tolist() == [[0.0, 9 / 16, 0.0], [0.0, 0.0, 1.0]]
    assert distance(groups, layout).tolist() == [[0.0, 9 / 32, 0.5]]
    assert group_distances(a[:0], b, layout, nbytes=4).shape == (2, 0, 3)
    with pytest.raises(ValueError, match="at least 1 byte"):
        group_distances(a, b, layout, nbytes=0)
