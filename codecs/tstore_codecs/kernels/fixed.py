"""Integer arithmetic that keeps its width: numba widens small unsigned integers to 64 bits.

LLVM narrows sums and masks again by itself; shifts it cannot, and a vector then holds half as much.
"""

from numba.extending import intrinsic


@intrinsic
def cast(typing_context, value, like):
    """Return `value` in the type of `like`."""

    def generate(context, builder, signature, arguments):
        return context.cast(builder, arguments[0], signature.args[0], signature.return_type)

    return like(value, like), generate


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
