"""How close the ordered codecs come to the entropies they aim at: sizes, not speed."""

import functools
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

import tstore_codecs as tc
from tensor_codecs.samples import ByteArray, FloatArray, row_steps, weights

ROWS, LENGTH = 1024, 1500
STATES_NBYTES = 128
STEPS: dict[str, float | FloatArray] = {"even": 3e-4, "rows": row_steps(ROWS, LENGTH)}


class Sizes(NamedTuple):
    """Bytes of a blob, and what it may take besides the entropy of its symbols."""

    total: int
    besides: int


@functools.cache
def tuned(name: str) -> tuple[ByteArray, ByteArray]:
    """Return 3 MB of BF16 that moved, evenly or by row, and its base."""
    nbytes = 2 * ROWS * LENGTH
    return weights("BF16", nbytes, step=STEPS[name]), weights("BF16", nbytes)


@functools.cache
def sizes(codec: str, name: str) -> Sizes:
    """Return the sizes of the blob of a tuned tensor whose rows are known."""
    target, base = tuned(name)
    blob = tc.encode(target, dtype="BF16", codec=codec, shape=(ROWS, LENGTH), base=base)
    info = tc.inspect(blob)
    frame = 32 + 28 * info.n_chunks
    return Sizes(len(blob), frame + info.model_nbytes + STATES_NBYTES * info.n_chunks)


def keys(patterns: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the places of BF16 patterns among all of them."""
    return np.where(patterns >> 15, 0xFFFF - patterns, patterns + 0x8000)


def changes(target: ByteArray, base: ByteArray) -> npt.NDArray[np.int64]:
    """Return the signed differences of keys, in [-2^15, 2^15)."""
    ours, theirs = (keys(side.view("<u2").astype(np.int64)) for side in (target, base))
    return (ours - theirs + 0x8000) % 0x10000 - 0x8000


def bit_length(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the bits that each value takes."""
    return np.frexp(values.astype(np.float64))[1].astype(np.int64)


def entropy_nbytes(symbols: npt.NDArray[np.int64], given: npt.NDArray[Any] | int) -> float:
    """Return the order-0 entropy of `symbols`, if those with another `given` cost apart."""
    contexts, which = np.unique(np.broadcast_to(given, symbols.shape), return_inverse=True)
    counts = np.zeros((contexts.size, int(symbols.max()) + 1))
    np.add.at(counts, (which, symbols), 1)
    share = counts / counts.sum(axis=1, keepdims=True)
    logs = np.log2(share, out=np.zeros_like(share), where=share > 0)
    return float(-np.sum(counts * logs) / 8)


@pytest.mark.parametrize("name", STEPS)
def test_fmpp_comes_within_a_percent_of_its_entropy(name: str) -> None:
    target, base = tuned(name)
    change = changes(target, base)
    length = bit_length(np.abs(change))
    raw_bits = np.maximum(length - 1, 0).sum()
    ideal = entropy_nbytes(2 * length + (change < 0), 0) + raw_bits / 8
    found = sizes("fmpp", name)
    assert ideal < found.total <= 1.01 * ideal + found.besides


@pytest.mark.parametrize("name", STEPS)
def test_ulpack_comes_within_half_a_percent_of_its_entropy(name: str) -> None:
    target, base = tuned(name)
    change = changes(target, base)
    z = np.where(change < 0, -2 * change - 1, 2 * change)
    k = np.maximum(bit_length(z) - 3, 0)
    symbols = np.where(z < 4, z, 4 * (k + 1) + (z >> k) % 4)
    exponents = base.view("<u2") >> 7 & 0xFF
    ideal = entropy_nbytes(symbols, exponents) + k.sum() / 8
    found = sizes("ulpack", name)
    assert ideal < found.total <= 1.005 * ideal + found.besides


@pytest.mark.parametrize("name", STEPS)
def test_each_ordered_codec_pays(name: str) -> None:
    fmpp, ulpack, ulprow = (sizes(codec, name).total for codec in ("fmpp", "ulpack", "ulprow"))
    assert ulpack <= fmpp
    assert ulprow <= 1.001 * ulpack
    if name == "rows":
        assert ulprow <= 0.8 * ulpack


@pytest.mark.parametrize(
    ("codec", "worst"), [("zipnn", 0.70), ("bitx", 0.20), ("tensorx", 0.25), ("ulpack", 0.15)]
)
def test_bf16_shrinks_as_it_should(codec: str, worst: float) -> None:
    nbytes = 1 << 20
    base, target = weights("BF16", nbytes), weights("BF16", nbytes, step=2e-5)
    own_base = None if codec == "zipnn" else base
    blob = tc.encode(target, dtype="BF16", codec=codec, base=own_base)
    assert len(blob) < worst * nbytes
