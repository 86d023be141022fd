"""One row of 32 rANS lanes as vector code, emitted as LLVM IR; `lanes` has the plain twins.

The lanes of a row form groups of one vector each: 4 of 8 lanes (AVX2) or 2 of 16 (AVX-512). Words
pushed by a row lie on the stack in ascending order of lanes, so a group moves its words with one
compress or expand, and the bytes do not depend on the width of a vector.

No index is checked here either: what `lanes` asks of its callers holds, for whole rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from tstore_codecs.kernels import lanes as plain
from tstore_codecs.kernels.emit import F32, I8, I16, I32, I64, Row
from tstore_codecs.kernels.lanes import LANES
from tstore_codecs.kernels.paths import Avx2, Scalar


def _decode_symbols(row: Row, data: list[Any]) -> Any:
    """Emit `lanes.decode_symbols`."""
    states, words, height, slots, tables, symbols, at = data
    b, width, zero = row.builder, row.width, ir.Constant(I64, 0)
    # All look-ups first: a gather is long, and a core's window of instructions is not.
    found = {}
    for group in reversed(row.groups):
        state = row.load(states, zero, group * width, I32)
        table = row.load(tables, at, group * width, I8)
        slot = b.and_(state, row.splat(4095))
        found[group] = state, row.lookup(slots, b.add(b.shl(table, row.splat(12)), slot))
    for group, (state, entry) in found.items():
        lane = group * width
        row.store(entry, symbols, at, lane, I8)
        freq = b.and_(b.lshr(entry, row.splat(8)), row.splat(4095))
        freq = b.add(freq, row.splat(1))
        state = b.mul(freq, b.lshr(state, row.splat(12)))
        state = b.add(state, b.lshr(entry, row.splat(20)))
        state, height = row.renormalise_up(words, height, state)
        row.store(state, states, zero, lane, I32)
    return height


def _decode_bits(row: Row, data: list[Any]) -> Any:
    """Emit `lanes.decode_bits`."""
    states, words, height, symbols, shift, skip, raw, at = data
    b = row.builder
    widths = row.raw_widths(symbols, at, shift, skip)
    before, done = row.skip_if_zero(widths)
    start = height
    for group in reversed(row.groups):
        lane, bits = group * row.width, widths[group]
        state = row.load(states, ir.Constant(I64, 0), lane, I32)
        mask = b.sub(b.shl(row.splat(1), bits), row.splat(1))
        row.store(b.and_(state, mask), raw, at, lane, I16)
        state, height = row.renormalise_up(words, height, b.lshr(state, bits))
        row.store(state, states, ir.Constant(I64, 0), lane, I32)
    return row.join(before, start, done, height)


def _encode_symbols(row: Row, data: list[Any]) -> Any:
    """Emit `lanes.encode_symbols`."""
    states, words, height, ranges, tables, symbols, at = data
    b, width = row.builder, row.width
    found = []
    for group in row.groups:
        table = row.load(tables, at, group * width, I8)
        symbol = row.load(symbols, at, group * width, I8)
        found.append(row.lookup(ranges, b.add(b.shl(table, row.splat(8)), symbol)))
    for group in row.groups:
        lane, entry = group * width, found[group]
        freq = b.add(b.and_(entry, row.splat(4095)), row.splat(1))
        state = row.load(states, ir.Constant(I64, 0), lane, I32)
        due = b.icmp_unsigned(">=", b.lshr(state, row.splat(20)), freq)
        state, height = row.renormalise_down(words, height, due, state)
        quotient, rest = _divide(row, state, freq)
        state = b.add(b.shl(quotient, row.splat(12)), b.add(rest, b.lshr(entry, row.splat(12))))
        row.store(state, states, ir.Constant(I64, 0), lane, I32)
    return height


def _divide(row: Row, state: Any, freq: Any) -> tuple[Any, Any]:
    """Return quotient, below 2**20, and remainder of ``state / freq``.

    Both roundings are off by less than 2**-24 of the quotient. So the estimate, lowered by 2**-22
    of it, lies less than 3/8 below: it is the quotient or one less, and the remainder tells.
    """
    b, floats = row.builder, row.vector(F32)
    lowered = row.splat(1 - 2**-22, F32)
    estimate = b.fdiv(b.uitofp(state, floats), b.sitofp(freq, floats))
    quotient = b.fptosi(b.fmul(estimate, lowered), row.vector(I32))
    rest = b.sub(state, b.mul(quotient, freq))
    less = b.icmp_unsigned(">=", rest, freq)
    quotient = b.add(quotient, b.zext(less, row.vector(I32)))
    return quotient, b.sub(rest, b.select(less, freq, row.splat(0)))


def _encode_bits(row: Row, data: list[Any]) -> Any:
    """Emit `lanes.encode_bits`."""
    states, words, height, symbols, shift, skip, raw, at = data
    b = row.builder
    widths = row.raw_widths(symbols, at, shift, skip)
    before, done = row.skip_if_zero(widths)
    start = height
    for group in row.groups:
        lane, bits = group * row.width, widths[group]
        state = row.load(states, ir.Constant(I64, 0), lane, I32)
        room = b.sub(row.splat(16), bits)
        due = b.icmp_unsigned("!=", b.lshr(b.lshr(state, row.splat(16)), room), row.splat(0))
        state, height = row.renormalise_down(words, height, due, state)
        state = b.or_(b.shl(state, bits), row.load(raw, at, lane, I16))
        row.store(state, states, ir.Constant(I64, 0), lane, I32)
    return row.join(before, start, done, height)


def _emitter(emit: Callable[[Row, list[Any]], Any], plain: Any) -> Any:
    """Return the body of an intrinsic: `emit` for the path in its first argument, or `plain`."""

    def body(typing_context: Any, path: Any, *kinds: Any) -> Any:
        signature = types.int64(path, *kinds)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            if path.instance_class is Scalar:
                lanes = context.get_constant(types.int64, LANES)
                whole = types.int64(*signature.args[1:], types.int64)
                return context.compile_internal(
                    builder, plain.py_func, whole, [*arguments[1:], lanes]
                )
            row = Row(context, builder, 8 if path.instance_class is Avx2 else 16)
            data = [
                row.data(kind, value) if isinstance(kind, types.Array) else value
                for kind, value in zip(signature.args[1:], arguments[1:], strict=True)
            ]
            return emit(row, data)

        return signature, generate

    return body


_CODE = {
    "decode_symbols": _emitter(_decode_symbols, plain.decode_symbols),
    "decode_bits": _emitter(_decode_bits, plain.decode_bits),
    "encode_symbols": _emitter(_encode_symbols, plain.encode_symbols),
    "encode_bits": _emitter(_encode_bits, plain.encode_bits),
}


@intrinsic
def decode_symbols(context, path, states, words, height, slots, tables, symbols, at):
    """Do what `lanes.decode_symbols` does, for a whole row, on the path whose value is given."""
    return _CODE["decode_symbols"](context, path, states, words, height, slots, tables, symbols, at)


@intrinsic
def decode_bits(context, path, states, words, height, symbols, shift, skip, raw, at):
    """Do what `lanes.decode_bits` does; see `decode_symbols`."""
    return _CODE["decode_bits"](context, path, states, words, height, symbols, shift, skip, raw, at)


@intrinsic
def encode_symbols(context, path, states, words, height, ranges, tables, symbols, at):
    """Do what `lanes.encode_symbols` does; see `decode_symbols`."""
    return _CODE["encode_symbols"](
        context, path, states, words, height, ranges, tables, symbols, at
    )


@intrinsic
def encode_bits(context, path, states, words, height, symbols, shift, skip, raw, at):
    """Do what `lanes.encode_bits` does; see `decode_symbols`."""
    return _CODE["encode_bits"](context, path, states, words, height, symbols, shift, skip, raw, at)


@intrinsic
def look_up(context, choice, fields, tables, at):
    """Write ``choice[field]`` of 32 `fields`, below 32, from `at` on to `tables`; all uint8."""
    signature = types.void(choice, fields, tables, at)

    def generate(context, b, signature, arguments):
        row = Row(context, b, 32)
        choice, fields, tables = (
            row.data(kind, value)
            for kind, value in zip(signature.args[:3], arguments[:3], strict=True)
        )
        vector = row.vector(I8)
        shuffle = row.function("llvm.x86.avx2.pshuf.b", vector, [vector, vector])
        field = b.load(row.address(fields, arguments[3], 0, I8), align=1)
        halves = []
        for offset in (0, 16):
            half = ir.VectorType(I8, 16)
            part = b.load(
                b.bitcast(b.gep(choice, [ir.Constant(I64, offset)]), half.as_pointer()), align=1
            )
            twice = ir.Constant(ir.VectorType(I32, 32), [*range(16)] * 2)
            both = b.shuffle_vector(part, ir.Constant(half, ir.Undefined), twice)
            halves.append(b.call(shuffle, [both, field]))
        low = b.icmp_unsigned("<", field, row.splat(16, I8))
        chosen = b.select(low, *halves)
        b.store(chosen, row.address(tables, arguments[3], 0, I8), align=1)
        return context.get_dummy_value()

    return signature, generate
