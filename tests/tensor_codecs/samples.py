"""Tensors that look trained, tensors that look tuned from them, and awkward ones."""

import numpy as np
import numpy.typing as npt

from tstore_codecs.dtypes import DTYPES

ByteArray = npt.NDArray[np.uint8]

_FLOATS = {"F16": np.float16, "F32": np.float32, "F64": np.float64, "C64": np.float32}


def weights(dtype: str, nbytes: int, seed: int = 0, step: float = 0.0) -> ByteArray:
    """Return `nbytes` bytes of bell-shaped elements; `step` > 0 moves them as fine-tuning would.

    The same seed with another step gives a relative of the tensor with step 0.
    """
    kind = DTYPES[dtype]
    rng = np.random.default_rng(seed)
    n = -(-nbytes // kind.width)
    values = 0.04 * rng.standard_normal(n) * np.repeat(rng.uniform(0.3, 2, n // 64 + 1), 64)[:n]
    values += step * rng.standard_normal(n)
    if dtype == "BF16":
        elements = (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    elif dtype in _FLOATS:
        elements = values.astype(_FLOATS[dtype])
    else:
        elements = np.rint(values * 100).astype(f"<i{kind.width}")
    return elements.view(np.uint8)[:nbytes].copy()


def special_floats(width: int) -> ByteArray:
    """Return zeros, infinities, subnormals and NaNs of many payloads, as units of `width` bytes."""
    bits = 8 * width
    units = {0, 1, 1 << (bits - 1), (1 << bits) - 1, (1 << (bits - 1)) - 1}
    for exponent_bits in (2, 3, 4, 5, 8, 11):
        if exponent_bits < bits:
            inf = ((1 << exponent_bits) - 1) << (bits - 1 - exponent_bits)
            units |= {inf, inf | 1, inf - 1, inf | 1 << (bits - 1), inf | (inf >> 1) & ~inf}
    ordered = sorted(unit & ((1 << bits) - 1) for unit in units)
    return np.array(ordered, f"<u{width}").view(np.uint8).copy()


def awkward(dtype: str) -> dict[str, ByteArray]:
    """Return inputs that codecs tend to get wrong, by a name for the test id."""
    width = DTYPES[dtype].width
    rng = np.random.default_rng(1)
    return {
        "empty": np.empty(0, np.uint8),
        "one_byte": np.array([7], np.uint8),
        "one_element": np.arange(width, dtype=np.uint8),
        "element_and_a_byte": np.arange(width + 1, dtype=np.uint8),
        "fewer_than_lanes": weights(dtype, 63 * width),
        "lanes": weights(dtype, 64 * width),
        "odd_size": weights(dtype, 5000 * width + width - 1),
        "zeros": np.zeros(3000 * width, np.uint8),
        "all_equal": np.tile(weights(dtype, width, seed=5), 3000),
        "random": rng.integers(0, 256, 3000 * width, np.uint8),
        "special": np.tile(special_floats(width), 50),
        "long_zero_run": np.concatenate((weights(dtype, 9000 * width), np.zeros(4000, np.uint8))),
    }
