"""The rANS stream: tables, edge cases, and decoders fed with anything."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensor_codecs import reference_rans as reference
from tensor_codecs.samples import weights
from tstore_codecs import CorruptBlobError, entropy
from tstore_codecs import tables as tables_of
from tstore_codecs.kernels import freqs as tables
from tstore_codecs.kernels import lanes as plain
from tstore_codecs.kernels import rans
from tstore_codecs.kernels.lanes import LANES

counts_of_symbols = st.dictionaries(
    st.integers(0, 255), st.integers(1, 1 << 20) | st.integers(1, 3), min_size=1, max_size=256
)


def dense(values: dict[int, int], dtype: type[np.generic]) -> npt.NDArray[Any]:
    """Return `values` by symbol as an array (256,)."""
    array = np.zeros(256, dtype)
    for symbol, value in values.items():
        array[symbol] = value
    return array


def normalised(counts: dict[int, int]) -> npt.NDArray[np.uint32]:
    """Return the frequencies the kernel gives `counts`."""
    freqs = np.full(256, 99, np.uint32)
    tables.normalise(dense(counts, np.int64), freqs)
    return freqs


def encoded(symbols: bytes) -> bytes:
    """Return the rANS stream of `symbols`."""
    array = np.frombuffer(symbols, np.uint8)
    return entropy.encode_symbols(array, tables_of.normalised(entropy.histogram(array)))


def decoded(stream: bytes, n: int) -> bytes:
    """Return the n symbols of `stream`."""
    out = np.empty(n, np.uint8)
    entropy.decode_symbols(np.frombuffer(stream, np.uint8), out)
    return out.tobytes()


@settings(max_examples=100, deadline=None)
@given(counts_of_symbols)
def test_frequencies_sum_to_4096_and_cover_what_occurs(counts: dict[int, int]) -> None:
    freqs = normalised(counts)
    assert freqs.sum() == 4096
    assert {s for s in range(256) if freqs[s]} == set(counts)


def test_ties_go_to_the_lower_symbol() -> None:
    assert {s: int(f) for s, f in enumerate(normalised({3: 1, 9: 1, 5: 1})) if f} == {
        3: 1366,
        5: 1365,
        9: 1365,
    }
    assert normalised(dict.fromkeys(range(200), 1)).tolist() == [21] * 96 + [20] * 104 + [0] * 56


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.integers(0, 255), st.integers(1, 10**6), min_size=2, max_size=40))
def test_no_single_step_improves_the_frequencies(counts: dict[int, int]) -> None:
    freqs = {s: int(f) for s, f in enumerate(normalised(counts)) if f}
    gain = max(c * np.log2((freqs[s] + 1) / freqs[s]) for s, c in counts.items())
    losses = [c * np.log2(freqs[s] / (freqs[s] - 1)) for s, c in counts.items() if freqs[s] > 1]
    # 2 / (2f + 1) stands for log((f + 1) / f): 4 % off at worst, for f = 1.
    assert not losses or gain <= min(losses) * 1.05


@settings(max_examples=100, deadline=None)
@given(counts_of_symbols)
def test_estimated_size_is_the_cross_entropy(counts: dict[int, int]) -> None:
    freqs = normalised(counts)
    bits = sum(c * (12 - np.log2(float(freqs[s]))) for s, c in counts.items())
    estimate = tables.coded_nbytes(dense(counts, np.int64), freqs)
    assert bits / 8 - 1 <= estimate <= bits / 8 + sum(counts.values()) / 2048 + 1


@settings(max_examples=100, deadline=None)
@given(counts_of_symbols)
def test_tables_match_the_plain_ones(counts: dict[int, int]) -> None:
    freqs = normalised(counts)
    out = np.full(tables.MAX_TABLE_NBYTES, 255, np.uint8)
    written = out[: tables.write_table(freqs, out)]
    assert written.tobytes() == reference.write_table({s: int(freqs[s]) for s in counts})
    back = np.empty(256, np.uint32)
    assert tables.read_table(np.append(written, 7), back) == written.size
    assert np.array_equal(back, freqs)
    for end in range(written.size):
        assert tables.read_table(written[:end], back) == tables.TABLE_ENDS_EARLY


@pytest.mark.parametrize(
    ("table", "code"),
    [
        (b"\x00\x01\xff\x1e", tables.TABLE_WRONG_SUM),
        (b"\x00\x01\x80\x20", tables.TABLE_WRONG_SUM),
        (b"\x00\x01\xff\xff", tables.TABLE_WRONG_SUM),
        (b"\x00\x03\xff\x1f\x00", tables.TABLE_NOT_CANONICAL),
        (b"\x01\x01\xff\x1f\x00", tables.TABLE_NOT_CANONICAL),
        (b"\x01\x03\x85\x00\xf9\x1f", tables.TABLE_NOT_CANONICAL),
        (b"\x00\x01\xff\x1f", 4),
    ],
)
def test_tables_a_writer_never_writes(table: bytes, code: int) -> None:
    assert tables.read_table(np.frombuffer(table, np.uint8), np.empty(256, np.uint32)) == code


def streams_of_every_shape() -> Iterator[bytes]:
    """Yield symbols: below, at and above rows of lanes and tiles; one symbol; two; all; skewed."""
    rng = np.random.default_rng(0)
    for n in (1, 2, 3, 4, 5, 31, 32, 33, 1000, 2047, 2049, 4095, 4096, 4097, 4127, 6145):
        yield bytes(n)
        yield b"\xff" * n
        yield rng.integers(0, 2, n, np.uint8).tobytes()
        yield rng.integers(0, 256, n, np.uint8).tobytes()
        yield rng.geometric(0.4, n).astype(np.uint8).tobytes()
    yield bytes(range(256)) * 4
    yield bytes(20000) + b"\x01"
    yield weights("BF16", 6000).tobytes()


def test_streams_match_the_plain_coder() -> None:
    for symbols in streams_of_every_shape():
        stream = encoded(symbols)
        freqs, _ = reference.read_table(stream)
        assert stream == reference.encode_bytes(symbols, freqs)
        assert reference.decode_bytes(stream, len(symbols)) == symbols
        assert decoded(stream, len(symbols)) == symbols


def test_one_symbol_takes_no_words() -> None:
    for n in (1, 100, 4095, 4096, 100_000):
        assert len(encoded(b"a" * n)) == len(encoded(b"a")) + (112 if n >= 4096 else 0)


def test_streams_come_near_the_entropy() -> None:
    symbols = np.frombuffer(
        np.random.default_rng(0).geometric(0.3, 100_000).astype(np.uint8), np.uint8
    )
    p = np.bincount(symbols) / symbols.size
    entropy_nbytes = -symbols.size * np.sum(p[p > 0] * np.log2(p[p > 0])) / 8
    assert len(encoded(symbols.tobytes())) < 1.001 * entropy_nbytes + 4 * LANES + 64


@pytest.mark.parametrize("n", [100, 4095, 4096, 50_000])
def test_the_size_of_a_stream_is_known_beforehand(n: int) -> None:
    for symbols in (np.zeros(n, np.uint8), np.random.default_rng(n).geometric(0.3, n).astype("u1")):
        counts = entropy.histogram(symbols)
        freqs = tables_of.normalised(counts)
        stream = entropy.encode_symbols(symbols, freqs)
        expected = entropy.coded_nbytes(counts, freqs, n)
        lanes = rans.lanes_of(n)
        # A lane ends with up to 16 bits that its state still has room for.
        assert expected - 2 * lanes - 1 <= len(stream) <= expected + n // 2048 + 2 * lanes + 64


STREAM = encoded(b"abracadabra" * 100)
TABLE_NBYTES = reference.read_table(STREAM)[1]
WORDS_AT = TABLE_NBYTES + 4 * rans.FEW_LANES
ONLY_ZEROS = encoded(bytes(5))


@pytest.mark.parametrize(
    ("stream", "n", "message"),
    [
        (STREAM[: TABLE_NBYTES - 1], 1100, "ends early"),
        (STREAM[: WORDS_AT - 1], 1100, "16 bytes of states"),
        (STREAM + b"\0", 1100, "even number"),
        (STREAM[: TABLE_NBYTES + 2] + b"\0\0" + STREAM[TABLE_NBYTES + 4 :], 1100, "below 2"),
        (STREAM[:WORDS_AT] + b"\0\0" + STREAM[WORDS_AT:], 1100, "words are left"),
        (STREAM[:WORDS_AT] + STREAM[WORDS_AT + 2 :], 1100, "run out"),
        (STREAM, 2000, "run out"),
        (ONLY_ZEROS[:-1] + b"\x80", 5, "does not end"),
    ],
)
def test_each_stream_check(stream: bytes, n: int, message: str) -> None:
    with pytest.raises(CorruptBlobError, match=message):
        decoded(stream, n)


class Guarded:
    """An array that fails on any index outside it; numpy would wrap negative ones."""

    def __init__(self, array: npt.NDArray[Any]) -> None:
        self.array = array
        self.size = array.size

    def __getitem__(self, index: int) -> Any:
        assert 0 <= index < self.size
        return self.array[index]

    def __setitem__(self, index: int, value: Any) -> None:
        assert 0 <= index < self.size
        self.array[index] = value


def plain_row(n: int, states: Guarded, stack: Guarded, slots: Guarded, picked: Guarded) -> Any:
    """Decode one row, symbols and two passes of raw bits, without compiling; return what is left."""
    symbols = Guarded(np.zeros(n, np.uint8))
    raw = [Guarded(np.zeros(n, np.uint16)) for _ in range(2)]
    decode_symbols, decode_bits = plain.decode_symbols.py_func, plain.decode_bits.py_func
    height = decode_symbols(states, stack, stack.size - LANES, slots, picked, symbols, 0, n)
    for k, part in enumerate(raw):
        height = max(height, LANES)
        height = decode_bits(states, stack, height, symbols, 2, 1 + 16 * k, part, 0, n)
    return height, symbols.array.tolist(), [part.array.tolist() for part in raw]


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_decoding_anything_stays_inside_the_arrays(data: st.DataObject) -> None:
    n_tables = data.draw(st.integers(1, 3))
    slots = np.empty((n_tables, tables.PROB_TOTAL), np.uint32)
    for row in slots:
        counts = data.draw(st.dictionaries(st.integers(0, 255), st.integers(1, 99), min_size=1))
        tables.decode_slots(normalised(counts), row)
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    n = data.draw(st.integers(1, LANES))
    states = rng.integers(1 << 16, 1 << data.draw(st.integers(17, 32)), n, np.uint32)
    stack = rng.integers(0, 1 << 16, 2 * LANES + data.draw(st.integers(0, 80)), np.uint16)
    picked = rng.integers(0, n_tables, n, np.uint8)
    own_states = Guarded(states.copy())
    others = (Guarded(array) for array in (stack, slots.reshape(-1), picked))
    with np.errstate(over="ignore"):
        expected = plain_row(n, own_states, *others)
    symbols, raw = np.zeros(n, np.uint8), np.zeros((2, n), np.uint16)
    height = plain.decode_symbols(
        states, stack, stack.size - LANES, slots.reshape(-1), picked, symbols, 0, n
    )
    for k in range(2):
        height = max(height, LANES)
        height = plain.decode_bits(states, stack, height, symbols, 2, 1 + 16 * k, raw[k], 0, n)
    assert (height, symbols.tolist(), raw.tolist()) == expected
    assert np.array_equal(states, own_states.array)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=400), st.integers(0, 300) | st.integers(4096, 4200))
def test_any_bytes_decode_or_are_refused(tail: bytes, n: int) -> None:
    for stream in (tail, STREAM[:TABLE_NBYTES] + tail, STREAM[:WORDS_AT] + tail):
        try:
            symbols = decoded(stream, n)
        except CorruptBlobError:
            continue
        # An accepted stream is the one stream that these symbols have under its table.
        assert reference.encode_bytes(symbols, reference.read_table(stream)[0]) == stream
