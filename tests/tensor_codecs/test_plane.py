"""Which way a byte plane is coded, and why."""

import numpy as np
import pytest
from tensor_codecs.samples import ByteArray

from tstore_codecs import plane
from tstore_codecs.limits import SMALL_PLANE_NBYTES

RNG = np.random.default_rng(0)
N = 100_000


def noise(n: int) -> ByteArray:
    """Return n random bytes, none of them zero."""
    return RNG.integers(1, 256, n, np.uint8)


def skewed(n: int) -> ByteArray:
    """Return n independent bytes of about 2.5 bits each."""
    return RNG.geometric(0.35, n).astype(np.uint8)


def scattered(n: int, share: float) -> ByteArray:
    """Return n random bytes, that share of them zero, in no order."""
    return np.where(RNG.random(n) < share, 0, noise(n)).astype(np.uint8)


PLANES = {
    "noise": (noise(N), plane.RAW),
    "near noise, like mantissas": (noise(N) & ~(2 * (RNG.random(N) < 0.2)), plane.RAW),
    "noise with 5 % zeros in a row": (np.append(noise(95_000), np.zeros(5000)), plane.ZSTD),
    "small": (skewed(1000), plane.ZSTD),
    "no longer small": (skewed(SMALL_PLANE_NBYTES + 1), plane.RANS),
    "two bytes": (np.array([1, 2], np.uint8), plane.RAW),
    "empty": (np.empty(0, np.uint8), plane.RAW),
}


@pytest.mark.parametrize("name", PLANES)
def test_mode(name: str) -> None:
    values, mode = PLANES[name]
    values = values.astype(np.uint8)
    coded = plane.encode_plane(values)
    assert coded[0] == mode
    assert len(coded) <= values.size + 1
    back = np.empty_like(values)
    payload = np.frombuffer(b"before" + coded + b"after", np.uint8)
    assert plane.decode_plane(payload, 6, back) == 6 + len(coded)
    assert np.array_equal(back, values)
