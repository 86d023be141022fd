"""What the models of the delta codecs could reach: counted here, apart from the codecs.

Both bounds are entropies of counted frequencies plus raw bits, without any cost of tables.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.data import WIDTHS, ByteArray, Tensor

_MANTISSA = {"BF16": 7, "F32": 23, "F8_E4M3": 3}
_BLOCK = 1 << 20
_SYMBOLS = 256

Counts = npt.NDArray[np.int64]
Words = npt.NDArray[Any]


def fmpp_bound(tensor: Tensor) -> float:
    """Return bytes of `tensor` by the order-0 entropy of (sign, bit length), and raw bits."""
    return _bound(tensor, by_exponent=False)


def ulpack_bound(tensor: Tensor) -> float:
    """Return bytes by the entropy of (bit length, next two) given the base's exponent, and raw bits."""
    return _bound(tensor, by_exponent=True)


def _bound(tensor: Tensor, *, by_exponent: bool) -> float:
    counts = np.zeros((256, _SYMBOLS), np.int64)
    raw_bits = 0
    for at in range(0, tensor.nbytes, _BLOCK):
        base = _words(tensor.base, at, tensor.dtype)
        change = _keys(_words(tensor.data, at, tensor.dtype)) - _keys(base)
        if by_exponent:
            symbols, raw = _folded(change)
            magnitude = base & base.dtype.type((1 << (8 * base.itemsize - 1)) - 1)
            contexts = (magnitude >> base.dtype.type(_MANTISSA[tensor.dtype])).astype(np.int64)
        else:
            symbols, raw = _signed(change)
            contexts = np.zeros(base.size, np.int64)
        joint = np.bincount(contexts * _SYMBOLS + symbols, minlength=counts.size)
        counts += joint.reshape(counts.shape)
        raw_bits += int(raw.sum())
    return (_entropy_bits(counts) + raw_bits) / 8


def _words(data: ByteArray | None, at: int, dtype: str) -> Words:
    if data is None:
        raise ValueError("expected a tensor with a base; found one alone")
    return data[at : at + _BLOCK].view(f"<u{WIDTHS[dtype]}")


def _keys(bits: Words) -> Words:
    """Return unsigned integers in the order of the floats with these bits."""
    half = bits.dtype.type(1 << (8 * bits.itemsize - 1))
    return np.where(bits >= half, ~bits, bits ^ half)


def _signed(change: Words) -> tuple[Counts, Counts]:
    """Return (sign, bit length) as a symbol, and how many bits lie below the highest."""
    signed = change.view(f"<i{change.itemsize}").astype(np.int64)
    length = np.frexp(np.abs(signed).astype(np.float64))[1].astype(np.int64)
    return 2 * length + (signed < 0), np.maximum(length - 1, 0)


def _folded(change: Words) -> tuple[Counts, Counts]:
    """Return (bit length, next two bits) of 0, -1, 1, -2, … counted from 0, and the bits below."""
    signed = change.view(f"<i{change.itemsize}").astype(np.int64)
    z = np.where(signed < 0, -2 * signed - 1, 2 * signed)
    raw = np.maximum(np.frexp(z.astype(np.float64))[1].astype(np.int64) - 3, 0)
    return np.where(z < 4, z, 4 * (raw + 1) + ((z >> raw) & 3)), raw


def _entropy_bits(counts: Counts) -> float:
    """Return bits of all symbols, each row of `counts` coded by its own frequencies."""
    totals = counts.sum(axis=1)
    return float(_n_log_n(totals) - _n_log_n(counts.reshape(-1)))


def _n_log_n(counts: Counts) -> float:
    seen = counts[counts > 0].astype(np.float64)
    return float((seen * np.log2(seen)).sum())
