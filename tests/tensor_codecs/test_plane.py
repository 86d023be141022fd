"""Which way a byte plane is coded, and why."""

import numpy as np
import pytest

from tensor_codecs.samples import ByteArray
from tstore_codecs import plane
from tstore_codecs.limits import MIN_PLANE_GAIN, SMALL_PLANE_NBYTES

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
    values = noise(n)
    values[RNG.random(n) < share] = 0
    return values


def mantissas(n: int, share: float) -> ByteArray:
    """Return n random bytes; one bit of them is 0 in that share besides those where it is anyway."""
    values = noise(n)
    values[RNG.random(n) < share] &= 253
    return values


def with_zero_run(n: int, run: int) -> ByteArray:
    """Return n random bytes that end in `run` zeros."""
    values = noise(n)
    values[n - run :] = 0
    return values


PLANES = {
    "noise": (noise(N), plane.RAW),
    "near noise": (mantissas(4 * N, 0.25), plane.RAW),
    "just worth it": (mantissas(4 * N, 0.36), plane.RANS),
    "worth it, not sampled": (mantissas(60_000, 0.5), plane.RANS),
    "one value": (np.full(N, 7, np.uint8), plane.CONSTANT),
    "one byte": (np.array([7], np.uint8), plane.CONSTANT),
    "skewed": (skewed(N), plane.RANS),
    "95 % zeros, scattered": (scattered(N, 0.95), plane.SPARSE),
    "95 % zeros, odd size": (scattered(N + 5, 0.95), plane.SPARSE),
    "one value in a sea of zeros": (np.eye(1, N, N // 2, np.uint8)[0], plane.SPARSE),
    "one row in twenty is not zero": (np.repeat(scattered(N // 500, 0.95), 500), plane.SPARSE),
    "95 % zeros, small": (scattered(50_000, 0.95), plane.RANS),
    "5 % zeros, scattered": (scattered(N, 0.05), plane.RANS),
    "5 % zeros in a row": (with_zero_run(N, 5000), plane.ZSTD),
    "small": (skewed(1000), plane.RANS),
    "small, repeats itself": (np.resize(skewed(100), SMALL_PLANE_NBYTES), plane.ZSTD),
    "no longer small": (np.resize(skewed(100), SMALL_PLANE_NBYTES + 1), plane.RANS),
    "two bytes": (np.array([1, 2], np.uint8), plane.RAW),
    "empty": (np.empty(0, np.uint8), plane.RAW),
}


@pytest.mark.parametrize("name", PLANES)
def test_mode(name: str) -> None:
    values, mode = PLANES[name]
    coded = b"".join(plane.encode_plane(values, MIN_PLANE_GAIN))
    assert coded[0] == mode
    assert len(coded) <= values.size + 1
    back = np.empty_like(values)
    payload = np.frombuffer(b"before" + coded + b"after", np.uint8)
    assert plane.decode_plane(payload, 6, back) == 6 + len(coded)
    assert np.array_equal(back, values)
