"""Ordered-integer residuals: between elements of a tensor and its base, and symbols with raw bits.

The transform is that of ULPack, appendix A: bit patterns become integers in the order of the
numbers they stand for, their difference modulo ``2**w`` is the residual. Two ways to write it as a
symbol and raw bits, told apart by the `shift` of `rans`:

* `MSB_SHIFT` (FM-Delta): sign and bit length of the difference; the bits below the highest are raw.
* `ULP_SHIFT` (ULPack, appendix B): z is the difference folded to 0, -1, 1, -2, …; the symbol is z
  below 4, else ``4 * (bit length - 2)`` plus the two bits after the highest. One symbol here
  is three in the paper; the model is the same.
"""

import numpy as np
from numba.extending import overload

from tstore_codecs.kernels.compiled import kernel
from tstore_codecs.kernels.fixed import cast, left, right
from tstore_codecs.kernels.lanes import BITS_PER_PASS

MSB_SHIFT = 1
ULP_SHIFT = 2

N_CONTEXTS = 32
"""Contexts that the exponent of a base element can give."""

_EXACT_IN_FLOAT = np.uint32(1 << 24)


@kernel
def _flips(half, floats):
    """Return the bits that `_ordered` and `_pattern` flip in negative floats and in all."""
    if floats:
        return cast(half - cast(1, half), half), half
    return cast(0, half), cast(0, half)


@kernel
def _all_ones_if(bit, like):
    return cast(cast(0, like) - cast(bit, like), like)


@kernel
def _ordered(pattern, top, flips):
    """Return the integer whose order is that of the floats with these bit patterns."""
    negative = _all_ones_if(right(pattern, top), top)
    return cast(pattern ^ cast(cast(negative & flips[0], top) | flips[1], top), top)


@kernel
def _pattern(key, top, flips):
    """Undo `_ordered`."""
    negative = _all_ones_if(right(key, top) ^ cast(1, top), top)
    return cast(key ^ cast(cast(negative & flips[0], top) | flips[1], top), top)


@kernel
def _float_top(value):
    """Return ``4 * length + bits`` of value > 0: its bit length, the two bits after the highest.

    They are the exponent and the first bits of a float, which holds 24 bits exactly.
    """
    wide = value >= _EXACT_IN_FLOAT
    kept = right(value, np.uint32(8)) if wide else value
    bits = np.float32(np.int32(kept)).view(np.uint32)
    top = np.uint32(right(bits, np.uint32(21)) - np.uint32(4 * 126))
    return np.uint32(top + (np.uint32(4 * 8) if wide else np.uint32(0)))


def _top_bits(value):
    """Return `_float_top` of a value of 32 or 64 bits."""
    raise NotImplementedError("only compiled code calls this")


@overload(_top_bits, inline="always")
def _compiled_top_bits(value):
    if str(value) == "uint32":
        return lambda value: _float_top(value)

    def wide(value):
        dropped = np.uint64(0)
        if value >> np.uint64(34):
            dropped = np.uint64(32)
        elif value >> np.uint64(32):
            dropped = np.uint64(8)
        return np.uint32(
            _float_top(np.uint32(value >> dropped)) + np.uint32(dropped << np.uint64(2))
        )

    return wide


@kernel
def _raw_mask(symbol, shift, like):
    """Return a mask of as many low bits as `symbol`, uint32, has raw ones."""
    length = np.int32(right(symbol, np.uint32(shift)))
    width = cast(np.uint32(max(np.int32(length - np.int32(1)), np.int32(0))), like)
    return cast(left(cast(1, like), width) - cast(1, like), like)


def _residuals(words, rest, raw):
    """Return where the raw bits of an element lie together: in one pass, if they fit it."""
    raise NotImplementedError("only compiled code calls this")


@overload(_residuals, inline="always")
def _compiled_residuals(words, rest, raw):
    if words.dtype.bitwidth <= BITS_PER_PASS:
        return lambda words, rest, raw: raw[0]
    return lambda words, rest, raw: rest


@kernel
def _scatter(rest, raw):
    """Write `rest`, 16 bits per pass, to `raw`."""
    for k in range(raw.shape[0]):
        plane = raw[k]
        for i in range(rest.size):
            plane[i] = np.uint16(right(rest[i], cast(16 * k, rest[i])))


@kernel
def _gather(raw, rest):
    """Undo `_scatter`."""
    plane = raw[0]
    for i in range(rest.size):
        rest[i] = plane[i]
    for k in range(1, raw.shape[0]):
        plane = raw[k]
        for i in range(rest.size):
            rest[i] |= left(cast(plane[i], rest[i]), cast(16 * k, rest[i]))


@kernel
def _split_ulp(target, base, half, floats, symbols, rest):
    mask = cast(half | cast(half - cast(1, half), half), half)
    top = cast(np.uint32(8 * target.itemsize - 1), half)
    one, flips = cast(1, half), _flips(half, floats)
    for i in range(target.size):
        key = _ordered(cast(target[i], half), top, flips)
        change = cast(cast(key - _ordered(cast(base[i], half), top, flips), half) & mask, half)
        fold = _all_ones_if(right(change, top), half)
        z = cast(cast(left(change, one) ^ fold, half) & mask, half)
        long = np.uint32(_top_bits(z) - np.uint32(8))
        symbol = np.uint32(z) if z < cast(4, half) else long
        symbols[i] = np.uint8(symbol)
        rest[i] = cast(z & _raw_mask(symbol, ULP_SHIFT, half), half)


@kernel
def _split_msb(target, base, half, floats, symbols, rest):
    mask = cast(half | cast(half - cast(1, half), half), half)
    top = cast(np.uint32(8 * target.itemsize - 1), half)
    flips = _flips(half, floats)
    for i in range(target.size):
        key = _ordered(cast(target[i], half), top, flips)
        change = cast(cast(key - _ordered(cast(base[i], half), top, flips), half) & mask, half)
        sign = right(change, top)
        size = cast(cast(cast(change ^ _all_ones_if(sign, half), half) + sign, half) & mask, half)
        long = np.uint32(right(_top_bits(size), np.uint32(1)) & np.uint32(0xFFFFFFFE))
        symbol = np.uint32(long | np.uint32(sign)) if size > cast(0, half) else np.uint32(0)
        symbols[i] = np.uint8(symbol)
        rest[i] = cast(size & _raw_mask(symbol, MSB_SHIFT, half), half)


@kernel
def split(target, base, half, floats, shift, symbols, rest, raw):
    """Write `target` given `base`, both words (n,), as symbols and raw bits.

    Parameters
    ----------
    half : uint32 or uint64
        ``2 ** (w - 1)`` for words of w bits; its type is the one computed in.
    floats : bool
        Whether the words are floats with their sign on top.
    shift : uint8
        `MSB_SHIFT` or `ULP_SHIFT`.
    symbols : uint8 (n,)
        Filled.
    rest : uint32 or uint64 (n,)
        As `half`; scratch.
    raw : uint16 (passes, >= n)
        Filled.
    """
    residuals = _residuals(target, rest, raw)
    if shift == MSB_SHIFT:
        _split_msb(target, base, half, floats, symbols, residuals)
    else:
        _split_ulp(target, base, half, floats, symbols, residuals)
    if raw.shape[0] > 1:
        _scatter(rest, raw)


@kernel
def _merge_ulp(symbols, rest, base, half, floats, target):
    mask = cast(half | cast(half - cast(1, half), half), half)
    top = cast(np.uint32(8 * target.itemsize - 1), half)
    one, flips = cast(1, half), _flips(half, floats)
    for i in range(target.size):
        symbol = np.uint32(symbols[i])
        low = _raw_mask(symbol, ULP_SHIFT, half)
        lead = cast(np.uint32(np.uint32(symbol & np.uint32(3)) | np.uint32(4)), half)
        long = cast(
            cast(lead * cast(low + one, half), half) | cast(cast(rest[i], half) & low, half), half
        )
        z = long if symbol >= np.uint32(4) else cast(symbol, half)
        change = cast(right(z, one) ^ _all_ones_if(cast(z & one, half), half), half)
        key = cast(_ordered(cast(base[i], half), top, flips) + change, half)
        target[i] = _pattern(cast(key & mask, half), top, flips)


@kernel
def _merge_msb(symbols, rest, base, half, floats, target):
    mask = cast(half | cast(half - cast(1, half), half), half)
    top = cast(np.uint32(8 * target.itemsize - 1), half)
    one, flips = cast(1, half), _flips(half, floats)
    for i in range(target.size):
        symbol = np.uint32(symbols[i])
        low = _raw_mask(symbol, MSB_SHIFT, half)
        long = cast(cast(low + one, half) | cast(cast(rest[i], half) & low, half), half)
        size = long if symbol >= np.uint32(2) else cast(0, half)
        sign = cast(np.uint32(symbol & np.uint32(1)), half)
        change = cast(cast(size ^ _all_ones_if(sign, half), half) + sign, half)
        key = cast(_ordered(cast(base[i], half), top, flips) + change, half)
        target[i] = _pattern(cast(key & mask, half), top, flips)


@kernel
def merge(symbols, raw, base, half, floats, shift, rest, target):
    """Undo `split`: fill `target`. Any symbols and raw bits make some target."""
    if raw.shape[0] > 1:
        _gather(raw, rest)
    residuals = _residuals(target, rest, raw)
    if shift == MSB_SHIFT:
        _merge_msb(symbols, residuals, base, half, floats, target)
    else:
        _merge_ulp(symbols, residuals, base, half, floats, target)


@kernel
def exponent_contexts(base, half, context_shift, context_low, contexts):
    """Write the context of each base element, below `N_CONTEXTS`, to `contexts`, uint8 (n,).

    It is the magnitude bits of the element, less its lowest `context_shift`, counted from
    `context_low` on and clamped: with the bits of the mantissa shifted out, the exponent.
    """
    magnitude = cast(half - cast(1, half), half)
    shift, low = cast(np.uint32(context_shift), half), np.int32(context_low)
    for i in range(base.size):
        field = np.int32(right(cast(cast(base[i], half) & magnitude, half), shift))
        above = max(np.int32(field - low), np.int32(0))
        contexts[i] = np.uint8(min(above, np.int32(N_CONTEXTS - 1)))
