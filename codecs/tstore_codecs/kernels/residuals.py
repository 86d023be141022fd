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
from numba import njit
from numba.extending import intrinsic, overload

MSB_SHIFT = 1
ULP_SHIFT = 2

N_CONTEXTS = 32
"""Contexts that the exponent of a base element can give."""

_EXACT_IN_FLOAT = np.uint32(1 << 24)


def cast(value, like):  # type: ignore[no-untyped-def]
    """Return `value` in the type of `like`: NumPy keeps it, numba widens uint32."""
    return type(like)(value)


@overload(cast, inline="always")
def _compiled_cast(value, like):  # type: ignore[no-untyped-def]
    kind = getattr(np, str(like))
    return lambda value, like: kind(value)


@intrinsic
def _left(typing_context, value, count):  # type: ignore[no-untyped-def]
    """Return ``value << count`` in the type of `value`, which `count` shares and does not reach.

    numba shifts uint32 as uint64: half the elements in a vector.
    """
    return value(value, value), lambda context, b, signature, arguments: b.shl(*arguments)


@intrinsic
def _right(typing_context, value, count):  # type: ignore[no-untyped-def]
    """Return ``value >> count``; see `_left`."""
    return value(value, value), lambda context, b, signature, arguments: b.lshr(*arguments)


@njit(nogil=True, cache=True)
def _flips(half, floats):  # type: ignore[no-untyped-def]
    """Return the bits that `_ordered` and `_pattern` flip in negative floats and in all."""
    if floats:
        return cast(half - cast(1, half), half), half
    return cast(0, half), cast(0, half)


@njit(nogil=True, cache=True)
def _all_ones_if(bit, like):  # type: ignore[no-untyped-def]
    return cast(cast(0, like) - cast(bit, like), like)


@njit(nogil=True, cache=True)
def _ordered(pattern, top, flips):  # type: ignore[no-untyped-def]
    """Return the integer whose order is that of the floats with these bit patterns."""
    negative = _all_ones_if(_right(pattern, top), top)
    return cast(pattern ^ cast(cast(negative & flips[0], top) | flips[1], top), top)


@njit(nogil=True, cache=True)
def _pattern(key, top, flips):  # type: ignore[no-untyped-def]
    """Undo `_ordered`."""
    negative = _all_ones_if(_right(key, top) ^ cast(1, top), top)
    return cast(key ^ cast(cast(negative & flips[0], top) | flips[1], top), top)


@njit(nogil=True, cache=True)
def _float_top(value):  # type: ignore[no-untyped-def]
    """Return ``4 * length + bits`` of value > 0: its bit length, the two bits after the highest.

    They are the exponent and the first bits of a float, which holds 24 bits exactly.
    """
    wide = value >= _EXACT_IN_FLOAT
    kept = _right(value, np.uint32(8)) if wide else value
    bits = np.float32(np.int32(kept)).view(np.uint32)
    top = np.uint32(_right(bits, np.uint32(21)) - np.uint32(4 * 126))
    return np.uint32(top + (np.uint32(4 * 8) if wide else np.uint32(0)))


def _top_bits(value):  # type: ignore[no-untyped-def]
    """Return `_float_top` of a value of 32 or 64 bits."""
    raise NotImplementedError("only compiled code calls this")


@overload(_top_bits, inline="always")
def _compiled_top_bits(value):  # type: ignore[no-untyped-def]
    if str(value) == "uint32":
        return lambda value: _float_top(value)

    def wide(value):  # type: ignore[no-untyped-def]
        dropped = np.uint64(0)
        if value >> np.uint64(34):
            dropped = np.uint64(32)
        elif value >> np.uint64(32):
            dropped = np.uint64(8)
        return np.uint32(_float_top(np.uint32(value >> dropped)) + np.uint32(dropped << np.uint64(2)))

    return wide


@njit(nogil=True, cache=True)
def _raw_mask(symbol, shift, like):  # type: ignore[no-untyped-def]
    """Return a mask of as many low bits as `symbol`, uint32, has raw ones."""
    length = np.int32(_right(symbol, np.uint32(shift)))
    width = cast(np.uint32(max(np.int32(length - np.int32(1)), np.int32(0))), like)
    return cast(_left(cast(1, like), width) - cast(1, like), like)


@njit(nogil=True, cache=True)
def _scatter(rest, raw):  # type: ignore[no-untyped-def]
    """Write `rest`, 16 bits per pass, to `raw`."""
    for k in range(raw.shape[0]):
        plane = raw[k]
        for i in range(rest.size):
            plane[i] = np.uint16(_right(rest[i], cast(16 * k, rest[i])))


@njit(nogil=True, cache=True)
def _gather(raw, rest):  # type: ignore[no-untyped-def]
    """Undo `_scatter`."""
    plane = raw[0]
    for i in range(rest.size):
        rest[i] = plane[i]
    for k in range(1, raw.shape[0]):
        plane = raw[k]
        for i in range(rest.size):
            rest[i] |= _left(cast(plane[i], rest[i]), cast(16 * k, rest[i]))


@njit(nogil=True, cache=True)
def _split_ulp(target, base, half, floats, symbols, rest):  # type: ignore[no-untyped-def]
    mask = cast(half | cast(half - cast(1, half), half), half)
    top = cast(np.uint32(8 * target.itemsize - 1), half)
    one, flips = cast(1, half), _flips(half, floats)
    for i in range(target.size):
        key = _ordered(cast(target[i], half), top, flips)
        change = cast(cast(key - _ordered(cast(base[i], half), top, flips), half) & mask, half)
        fold = _all_ones_if(_right(change, top), half)
        z = cast(cast(_left(change, one) ^ fold, half) & mask, half)
        long = np.uint32(_top_bits(z) - np.uint32(8))
        symbol = np.uint32(z) if z < cast(4, half) else long
        symbols[i] = np.uint8(symbol)
        rest[i] = cast(z & _raw_mask(symbol, ULP_SHIFT, half), half)


@njit(nogil=True, cache=True)
def _split_msb(target, base, half, floats, symbols, rest):  # type: ignore[no-untyped-def]
    mask = cast(half | cast(half - cast(1, half), half), half)
    top = cast(np.uint32(8 * target.itemsize - 1), half)
    flips = _flips(half, floats)
    for i in range(target.size):
        key = _ordered(cast(target[i], half), top, flips)
        change = cast(cast(key - _ordered(cast(base[i], half), top, flips), half) & mask, half)
        sign = _right(change, top)
        size = cast(cast(cast(change ^ _all_ones_if(sign, half), half) + sign, half) & mask, half)
        long = np.uint32(_right(_top_bits(size), np.uint32(1)) & np.uint32(0xFFFFFFFE))
        symbol = np.uint32(long | np.uint32(sign)) if size > cast(0, half) else np.uint32(0)
        symbols[i] = np.uint8(symbol)
        rest[i] = cast(size & _raw_mask(symbol, MSB_SHIFT, half), half)


@njit(nogil=True, cache=True)
def _split(target, base, half, floats, shift, symbols, rest):  # type: ignore[no-untyped-def]
    if shift == MSB_SHIFT:
        _split_msb(target, base, half, floats, symbols, rest)
    else:
        _split_ulp(target, base, half, floats, symbols, rest)


@njit(nogil=True, cache=True)
def split(target, base, half, floats, shift, symbols, rest, raw):  # type: ignore[no-untyped-def]
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
    if raw.shape[0] == 1:
        _split(target, base, half, floats, shift, symbols, raw[0])
    else:
        _split(target, base, half, floats, shift, symbols, rest)
        _scatter(rest, raw)


@njit(nogil=True, cache=True)
def _merge_ulp(symbols, rest, base, half, floats, target):  # type: ignore[no-untyped-def]
    mask = cast(half | cast(half - cast(1, half), half), half)
    top = cast(np.uint32(8 * target.itemsize - 1), half)
    one, flips = cast(1, half), _flips(half, floats)
    for i in range(target.size):
        symbol = np.uint32(symbols[i])
        low = _raw_mask(symbol, ULP_SHIFT, half)
        lead = cast(np.uint32(np.uint32(symbol & np.uint32(3)) | np.uint32(4)), half)
        long = cast(cast(lead * cast(low + one, half), half) | cast(cast(rest[i], half) & low, half), half)
        z = long if symbol >= np.uint32(4) else cast(symbol, half)
        change = cast(_right(z, one) ^ _all_ones_if(cast(z & one, half), half), half)
        key = cast(_ordered(cast(base[i], half), top, flips) + change, half)
        target[i] = _pattern(cast(key & mask, half), top, flips)


@njit(nogil=True, cache=True)
def _merge_msb(symbols, rest, base, half, floats, target):  # type: ignore[no-untyped-def]
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


@njit(nogil=True, cache=True)
def _merge(symbols, rest, base, half, floats, shift, target):  # type: ignore[no-untyped-def]
    if shift == MSB_SHIFT:
        _merge_msb(symbols, rest, base, half, floats, target)
    else:
        _merge_ulp(symbols, rest, base, half, floats, target)


@njit(nogil=True, cache=True)
def merge(symbols, raw, base, half, floats, shift, rest, target):  # type: ignore[no-untyped-def]
    """Undo `split`: fill `target`. Any symbols and raw bits make some target."""
    if raw.shape[0] == 1:
        _merge(symbols, raw[0], base, half, floats, shift, target)
    else:
        _gather(raw, rest)
        _merge(symbols, rest, base, half, floats, shift, target)


@njit(nogil=True, cache=True)
def exponent_contexts(base, half, context_shift, context_low, contexts):  # type: ignore[no-untyped-def]
    """Write the context of each base element, below `N_CONTEXTS`, to `contexts`, uint8 (n,).

    It is the magnitude bits of the element, less its lowest `context_shift`, counted from
    `context_low` on and clamped: with the bits of the mantissa shifted out, the exponent.
    """
    magnitude = cast(half - cast(1, half), half)
    shift, low = cast(np.uint32(context_shift), half), np.int32(context_low)
    for i in range(base.size):
        field = np.int32(_right(cast(cast(base[i], half) & magnitude, half), shift))
        above = max(np.int32(field - low), np.int32(0))
        contexts[i] = np.uint8(min(above, np.int32(N_CONTEXTS - 1)))
