"""Integer arithmetic that keeps its width: numba widens small unsigned integers to 64 bits.

LLVM narrows sums and masks again by itself; shifts it cannot, and a vector then holds half as much.
"""

import numpy as np
from numba.extending import intrinsic, overload


def cast(value, like):
    """Return `value` in the type of `like`: NumPy keeps it, numba widens uint32."""
    return type(like)(value)


@overload(cast, inline="always")
def _compiled_cast(value, like):
    kind = getattr(np, str(like))
    return lambda value, like: kind(value)


@intrinsic
def left(typing_context, value, count):
    """Return ``value << count`` in the type of `value`, which `count` shares and does not reach.

    numba shifts uint32 as uint64: half the elements in a vector.
    """
    return value(value, value), lambda context, b, signature, arguments: b.shl(*arguments)


@intrinsic
def right(typing_context, value, count):
    """Return ``value >> count``; see `left`."""
    return value(value, value), lambda context, b, signature, arguments: b.lshr(*arguments)
