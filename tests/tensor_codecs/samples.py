"""Tensors that look trained, tensors that look tuned from them, and awkward ones."""

from typing import Any

import numpy as np
import numpy.typing as npt

from tstore_codecs.dtypes import DTYPES

ByteArray = npt.NDArray[np.uint8]
FloatArray = npt.NDArray[np.float64]

_FLOATS = {"F16": np.float16, "F32": np.float32, "F64": np.float64, "C64": np.float32}
_BIASES = {"F8_E5M2": 15, "F8_E4M3": 7, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 16}


def weights(dtype: str, nbytes: int, seed: int = 0, step: float | FloatArray = 0.0) -> ByteArray:
    """Return `nbytes` bytes of bell-shaped elements; `step` > 0 moves them as fine-tuning would.

    The same seed with another step gives a relative of the tensor with step 0. `step` is the same
    for all elements, or one for each.
    """
    kind = DTYPES[dtype]
    rng = np.random.default_rng(seed)
    n = -(-nbytes // kind.width)
    elements: npt.NDArray[Any]
    values = 0.04 * rng.standard_normal(n) * np.repeat(rng.uniform(0.3, 2, n // 64 + 1), 64)[:n]
    values += step * rng.standard_normal(n)
    if dtype == "BF16":
        elements = (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    elif dtype in _BIASES:
        elements = _rounded_to_8_bits(values, dtype)
    elif dtype in _FLOATS:
        elements = values.astype(_FLOATS[dtype])
    else:
        elements = np.rint(values * 100).astype(f"<i{kind.width}")
    return elements.view(np.uint8)[:nbytes].copy()


def row_steps(rows: int, length: int, seed: int = 0) -> FloatArray:
    """Return steps for `weights`: those of a row are equal, rows differ and some do not move."""
    steps = np.random.default_rng(seed).choice((0, 1e-5, 1e-4, 1e-3, 1e-2), rows)
    return np.repeat(steps, length)


def _rounded_to_8_bits(values: FloatArray, dtype: str) -> ByteArray:
    """Return the nearest float with 8 bits whose exponent is not the highest, sign on top."""
    mantissa = DTYPES[dtype].mantissa_bits
    exponent, fraction = np.divmod(np.arange(128 - (1 << mantissa)), 1 << mantissa)
    leading = np.where(exponent, 1, 0) + fraction / (1 << mantissa)
    magnitudes = leading * 2.0 ** (np.maximum(exponent, 1) - _BIASES[dtype])
    borders = (magnitudes[1:] + magnitudes[:-1]) / 2
    nearest = np.searchsorted(borders, np.abs(values)).astype(np.uint8)
    return nearest | (np.signbit(values) << 7).astype(np.uint8)


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
        "fewer_than_lanes": weights(dtype, 3 * width),
        "last_of_few_lanes": weights(dtype, 4095 * width),
        "first_of_many_lanes": weights(dtype, 4096 * width),
        "odd_size": weights(dtype, 5000 * width + width - 1),
        "zeros": np.zeros(3000 * width, np.uint8),
        "all_equal": np.tile(weights(dtype, width, seed=5), 3000),
        "random": rng.integers(0, 256, 3000 * width, np.uint8),
        "special": np.tile(special_floats(width), 50),
        "long_zero_run": np.concatenate((weights(dtype, 9000 * width), np.zeros(4000, np.uint8))),
    }
