"""FP8 (E4M3) versions of bf16 weights, as a release of quantised weights has them."""

from __future__ import annotations

import numpy as np

from benchmarks.data import ByteArray, Pair, Tensor

LARGEST = 448.0
"""Largest value of E4M3."""


def quantised(pair: Pair) -> Pair:
    """Return a bf16 pair in E4M3, every tensor with a scale of its own."""
    tensors = []
    for tensor in pair.tensors:
        base = None if tensor.base is None else _quantise(tensor.base)
        tensors.append(Tensor("F8_E4M3", tensor.shape, _quantise(tensor.data), base))
    return Pair(f"{pair.name}, fp8", tensors)


def _quantise(bf16: ByteArray) -> ByteArray:
    """Return bf16 bytes as E4M3 codes of the value times 448 / (largest of the tensor)."""
    patterns = bf16.view(np.uint16)
    values = (patterns.astype(np.uint32) << np.uint32(16)).view(np.float32)
    scale = LARGEST / max(float(np.abs(values).max()), 1e-30)
    every = (np.arange(1 << 16, dtype=np.uint32) << np.uint32(16)).view(np.float32)
    magnitude = np.minimum(np.nan_to_num(np.abs(every)).astype(np.float64) * scale, LARGEST)
    sign = (np.arange(1 << 16) >> 15 << 7).astype(np.uint8)
    codes: ByteArray = (_nearest(magnitude) | sign)[patterns]
    return codes


def _nearest(magnitude: np.ndarray[tuple[int], np.dtype[np.float64]]) -> ByteArray:
    """Return the codes of the E4M3 values nearest to `magnitude`, ties to the even code."""
    code = np.arange(127)  # 127 is NaN
    exponent, mantissa = code >> 3, code & 7
    lead = np.where(exponent > 0, 8, 0) + mantissa
    values = lead * 2.0 ** (np.maximum(exponent, 1) - 10)
    middle = (values[:-1] + values[1:]) / 2
    below, above = (
        np.searchsorted(middle, magnitude, "left"),
        np.searchsorted(middle, magnitude, "right"),
    )
    return np.where(below % 2 == 0, below, above).astype(np.uint8)
