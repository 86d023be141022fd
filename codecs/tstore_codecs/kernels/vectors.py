"""One row of 64 rANS lanes as vector code, emitted as LLVM IR; `lanes` has the plain twins.

The lanes of a row form groups of one vector each: 8 of 8 lanes (AVX2) or 4 of 16 (AVX-512). Words
pushed by a row lie on the stack in ascending order of lanes, so a group moves its words with one
compress or expand, and the bytes do not depend on the width of a vector.

No index is checked here either: what `lanes` asks of its callers holds, for whole rows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from tstore_codecs.kernels import lanes as plain
from tstore_codecs.kernels.lanes import BITS_PER_PASS, LANES
from tstore_codecs.kernels.paths import Avx2, Scalar

LOOKUP_LEAD = 4
"""Groups whose table entries are requested ahead: a gather is long, a core's window is not."""

_I8, _I16, _I32, _I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
_F32 = ir.FloatType()


def _permutations() -> tuple[list[list[int]], list[list[int]]]:
    """Return, for each 8-bit mask of due lanes, where to take words from to expand and compress."""
    expand, compress = [], []
    for mask in range(256):
        due = [lane for lane in range(8) if mask >> lane & 1]
        expand.append([due.index(lane) if lane in due else 0 for lane in range(8)])
        compress.append(due + [0] * (8 - len(due)))
    return expand, compress


_EXPAND, _COMPRESS = _permutations()


class _Row:
    """Emits the code of one row for vectors of `width` lanes."""

    def __init__(self, context: Any, builder: Any, width: int) -> None:
        self.context, self.builder, self.width = context, builder, width
        self.groups = range(LANES // width)

    def vector(self, element: Any) -> Any:
        return ir.VectorType(element, self.width)

    def splat(self, value: int, element: Any = _I32) -> Any:
        return ir.Constant(self.vector(element), [value] * self.width)

    def broadcast(self, value: Any) -> Any:
        """Return a vector of copies of the i64 `value`, as u32."""
        b, undefined = self.builder, ir.Constant(self.vector(_I32), ir.Undefined)
        first = b.insert_element(undefined, b.trunc(value, _I32), ir.Constant(_I32, 0))
        return b.shuffle_vector(first, undefined, self.splat(0))

    def data(self, array_type: Any, array: Any) -> Any:
        return self.context.make_array(array_type)(self.context, self.builder, array).data

    def address(self, data: Any, at: Any, offset: int, element: Any) -> Any:
        """Return a pointer to a vector of `element` at ``data[at + offset]``."""
        b = self.builder
        at = b.add(at, ir.Constant(_I64, offset))
        return b.bitcast(b.gep(data, [at]), self.vector(element).as_pointer())

    def load(self, data: Any, at: Any, offset: int, element: Any) -> Any:
        """Return unaligned elements, widened to u32."""
        address = self.address(data, at, offset, element)
        loaded = self.builder.load(address, align=element.width // 8)
        return loaded if element is _I32 else self.builder.zext(loaded, self.vector(_I32))

    def store(self, value: Any, data: Any, at: Any, offset: int, element: Any) -> None:
        """Store u32 elements, narrowed to `element`."""
        if element is not _I32:
            value = self.builder.trunc(value, self.vector(element))
        address = self.address(data, at, offset, element)
        self.builder.store(value, address, align=element.width // 8)

    def lookup(self, data: Any, index: Any) -> Any:
        """Return ``data[index]``, u32."""
        b, vector = self.builder, self.vector(_I32)
        if self.width == 8:
            # LLVM takes its generic gather apart where it deems the instruction slow.
            pointer = _I8.as_pointer()
            gather = self.function(
                "llvm.x86.avx2.gather.d.d.256", vector, [vector, pointer, vector, vector, _I8]
            )
            zeros, every, scale = self.splat(0), self.splat(0xFFFFFFFF), ir.Constant(_I8, 4)
            return b.call(gather, [zeros, b.bitcast(data, pointer), index, every, scale])
        found = ir.Constant(vector, ir.Undefined)
        for lane in range(self.width):
            place = ir.Constant(_I32, lane)
            at = b.zext(b.extract_element(index, place), _I64)
            found = b.insert_element(found, b.load(b.gep(data, [at])), place)
        return found

    def function(self, name: str, result: Any, arguments: list[Any]) -> Any:
        known = self.builder.module.globals
        if name in known:
            return known[name]
        return ir.Function(self.builder.module, ir.FunctionType(result, arguments), name)

    def count(self, due: Any) -> tuple[Any, Any]:
        """Return the mask of due lanes as an integer, and how many they are as i64."""
        b, mask_type = self.builder, ir.IntType(self.width)
        mask = b.bitcast(due, mask_type)
        population = self.function(f"llvm.ctpop.i{self.width}", mask_type, [mask_type])
        return mask, b.zext(b.call(population, [mask]), _I64)

    def permute(self, words: Any, table: list[list[int]], name: str, mask: Any) -> Any:
        """Return 8 `words` in the order that `table` has for `mask`."""
        b, vector = self.builder, self.vector(_I32)
        row_type = ir.ArrayType(_I8, 8)
        table_type = ir.ArrayType(row_type, 256)
        known = b.module.globals
        if name not in known:
            constant = ir.GlobalVariable(b.module, table_type, name)
            constant.linkage, constant.global_constant = "internal", True
            rows = [ir.Constant(row_type, row) for row in table]
            constant.initializer = ir.Constant(table_type, rows)
        zero = ir.Constant(_I64, 0)
        row = b.gep(known[name], [zero, b.zext(mask, _I64), zero])
        order = b.load(b.bitcast(row, self.vector(_I8).as_pointer()), align=1)
        permd = self.function("llvm.x86.avx2.permd", vector, [vector, vector])
        return b.call(permd, [words, b.zext(order, vector)])

    def pop(self, words: Any, height: Any, due: Any) -> tuple[Any, Any]:
        """Return a word for each due lane, and the new height of the stack."""
        b = self.builder
        mask, count = self.count(due)
        height = b.sub(height, count)
        if self.width == 8:
            loaded = self.load(words, height, 0, _I16)
            return self.permute(loaded, _EXPAND, ".tstore.expand", mask), height
        vector = self.vector(_I16)
        expand = self.function(
            f"llvm.masked.expandload.v{self.width}i16",
            vector,
            [_I16.as_pointer(), self.vector(ir.IntType(1)), vector],
        )
        pointer = b.bitcast(b.gep(words, [height]), _I16.as_pointer())
        loaded = b.call(expand, [pointer, due, ir.Constant(vector, [0] * self.width)])
        return b.zext(loaded, self.vector(_I32)), height

    def push(self, words: Any, height: Any, due: Any, states: Any) -> Any:
        """Push the low word of each due lane; return the new height of the stack.

        Whole vectors are stored: the next push covers the excess, the last one falls on padding.
        """
        b = self.builder
        mask, count = self.count(due)
        if self.width == 8:
            packed = self.permute(states, _COMPRESS, ".tstore.compress", mask)
            self.store(packed, words, height, 0, _I16)
        else:
            vector = self.vector(_I16)
            compress = self.function(
                f"llvm.experimental.vector.compress.v{self.width}i16",
                vector,
                [vector, self.vector(ir.IntType(1)), vector],
            )
            undefined = ir.Constant(vector, ir.Undefined)
            packed = b.call(compress, [b.trunc(states, vector), due, undefined])
            b.store(packed, self.address(words, height, 0, _I16), align=2)
        return b.add(height, count)

    def renormalise_down(self, words: Any, height: Any, due: Any, states: Any) -> tuple[Any, Any]:
        """Push where `due`; return the states that are left, and the height."""
        b = self.builder
        height = self.push(words, height, due, states)
        return b.select(due, b.lshr(states, self.splat(16)), states), height

    def renormalise_up(self, words: Any, height: Any, states: Any) -> tuple[Any, Any]:
        """Pop for states below 2**16; return the full states, and the height."""
        b = self.builder
        due = b.icmp_unsigned("<", states, self.splat(1 << 16))
        popped, height = self.pop(words, height, due)
        refilled = b.or_(b.shl(states, self.splat(16)), popped)
        return b.select(due, refilled, states), height

    def raw_widths(self, symbols: Any, at: Any, shift: Any, skip: Any) -> list[Any]:
        """Return, for each group, what `lanes.raw_width` returns."""
        b, widths = self.builder, []
        shift, skip = self.broadcast(shift), self.broadcast(skip)
        zero, most = self.splat(0), self.splat(BITS_PER_PASS)
        for group in self.groups:
            symbol = self.load(symbols, at, group * self.width, _I8)
            width = b.sub(b.lshr(symbol, shift), skip)
            width = b.select(b.icmp_signed(">", width, zero), width, zero)
            widths.append(b.select(b.icmp_signed("<", width, most), width, most))
        return widths

    def skip_if_zero(self, widths: list[Any]) -> tuple[Any, Any]:
        """Start a block that runs unless all `widths` are 0; return the blocks around it."""
        b = self.builder
        every = functools.reduce(b.or_, widths)
        together = b.bitcast(every, ir.IntType(32 * self.width))
        before, some, done = b.block, b.append_basic_block("some"), b.append_basic_block("done")
        zero = ir.Constant(together.type, 0)
        b.cbranch(b.icmp_unsigned("!=", together, zero), some, done)
        b.position_at_end(some)
        return before, done

    def join(self, before: Any, unchanged: Any, done: Any, changed: Any) -> Any:
        """End the block of `skip_if_zero`; return the value that holds after it."""
        b = self.builder
        some = b.block
        b.branch(done)
        b.position_at_end(done)
        value = b.phi(_I64)
        value.add_incoming(unchanged, before)
        value.add_incoming(changed, some)
        return value


def _decode_symbols(row: _Row, data: list[Any]) -> Any:
    """Emit `lanes.decode_symbols`."""
    states, words, height, slots, tables, symbols, at = data
    b, width = row.builder, row.width
    lead = LOOKUP_LEAD * 8 // width
    order = list(reversed(row.groups))
    found: dict[int, tuple[Any, Any]] = {}
    for step in range(len(order) + lead):
        if step < len(order):
            lane = order[step] * width
            state = row.load(states, ir.Constant(_I64, 0), lane, _I32)
            table = row.load(tables, at, lane, _I8)
            slot = b.and_(state, row.splat(4095))
            index = b.add(b.shl(table, row.splat(12)), slot)
            found[lane] = state, row.lookup(slots, index)
        if step >= lead:
            lane = order[step - lead] * width
            state, entry = found[lane]
            row.store(entry, symbols, at, lane, _I8)
            freq = b.and_(b.lshr(entry, row.splat(8)), row.splat(4095))
            freq = b.add(freq, row.splat(1))
            state = b.mul(freq, b.lshr(state, row.splat(12)))
            state = b.add(state, b.lshr(entry, row.splat(20)))
            state, height = row.renormalise_up(words, height, state)
            row.store(state, states, ir.Constant(_I64, 0), lane, _I32)
    return height


def _decode_bits(row: _Row, data: list[Any]) -> Any:
    """Emit `lanes.decode_bits`."""
    states, words, height, symbols, shift, skip, raw, at = data
    b = row.builder
    widths = row.raw_widths(symbols, at, shift, skip)
    before, done = row.skip_if_zero(widths)
    start = height
    for group in reversed(row.groups):
        lane, bits = group * row.width, widths[group]
        state = row.load(states, ir.Constant(_I64, 0), lane, _I32)
        mask = b.sub(b.shl(row.splat(1), bits), row.splat(1))
        row.store(b.and_(state, mask), raw, at, lane, _I16)
        state, height = row.renormalise_up(words, height, b.lshr(state, bits))
        row.store(state, states, ir.Constant(_I64, 0), lane, _I32)
    return row.join(before, start, done, height)


def _encode_symbols(row: _Row, data: list[Any]) -> Any:
    """Emit `lanes.encode_symbols`."""
    states, words, height, ranges, tables, symbols, at = data
    b, width = row.builder, row.width
    found = []
    for group in row.groups:
        table = row.load(tables, at, group * width, _I8)
        symbol = row.load(symbols, at, group * width, _I8)
        found.append(row.lookup(ranges, b.add(b.shl(table, row.splat(8)), symbol)))
    for group in row.groups:
        lane, entry = group * width, found[group]
        freq = b.add(b.and_(entry, row.splat(4095)), row.splat(1))
        state = row.load(states, ir.Constant(_I64, 0), lane, _I32)
        due = b.icmp_unsigned(">=", b.lshr(state, row.splat(20)), freq)
        state, height = row.renormalise_down(words, height, due, state)
        quotient, rest = _divide(row, state, freq)
        state = b.add(b.shl(quotient, row.splat(12)), b.add(rest, b.lshr(entry, row.splat(12))))
        row.store(state, states, ir.Constant(_I64, 0), lane, _I32)
    return height


def _divide(row: _Row, state: Any, freq: Any) -> tuple[Any, Any]:
    """Return quotient, below 2**20, and remainder of ``state / freq``.

    The quotient of the rounded floats is off by one at most, so the remainder tells.
    """
    b, floats = row.builder, row.vector(_F32)
    estimate = b.fdiv(b.uitofp(state, floats), b.uitofp(freq, floats))
    quotient = b.fptosi(estimate, row.vector(_I32))
    rest = b.sub(state, b.mul(quotient, freq))
    zero, one = row.splat(0), row.splat(1)
    below = b.icmp_signed("<", rest, zero)
    quotient = b.sub(quotient, b.select(below, one, zero))
    rest = b.add(rest, b.select(below, freq, zero))
    above = b.icmp_signed(">=", rest, freq)
    quotient = b.add(quotient, b.select(above, one, zero))
    return quotient, b.sub(rest, b.select(above, freq, zero))


def _encode_bits(row: _Row, data: list[Any]) -> Any:
    """Emit `lanes.encode_bits`."""
    states, words, height, symbols, shift, skip, raw, at = data
    b = row.builder
    widths = row.raw_widths(symbols, at, shift, skip)
    before, done = row.skip_if_zero(widths)
    start = height
    for group in row.groups:
        lane, bits = group * row.width, widths[group]
        state = row.load(states, ir.Constant(_I64, 0), lane, _I32)
        room = b.sub(row.splat(16), bits)
        due = b.icmp_unsigned("!=", b.lshr(b.lshr(state, row.splat(16)), room), row.splat(0))
        state, height = row.renormalise_down(words, height, due, state)
        state = b.or_(b.shl(state, bits), row.load(raw, at, lane, _I16))
        row.store(state, states, ir.Constant(_I64, 0), lane, _I32)
    return row.join(before, start, done, height)


def _emitter(emit: Callable[[_Row, list[Any]], Any], plain: Any) -> Any:
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
            row = _Row(context, builder, 8 if path.instance_class is Avx2 else 16)
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
    """Do what `lanes.decode_symbols` does, for 64 lanes, on the path whose value is given."""
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
        row = _Row(context, b, 32)
        choice, fields, tables = (
            row.data(kind, value)
            for kind, value in zip(signature.args[:3], arguments, strict=False)
        )
        vector = row.vector(_I8)
        shuffle = row.function("llvm.x86.avx2.pshuf.b", vector, [vector, vector])
        field = b.load(row.address(fields, arguments[3], 0, _I8), align=1)
        halves = []
        for offset in (0, 16):
            half = ir.VectorType(_I8, 16)
            part = b.load(
                b.bitcast(b.gep(choice, [ir.Constant(_I64, offset)]), half.as_pointer()), align=1
            )
            twice = ir.Constant(ir.VectorType(_I32, 32), [*range(16)] * 2)
            both = b.shuffle_vector(part, ir.Constant(half, ir.Undefined), twice)
            halves.append(b.call(shuffle, [both, field]))
        low = b.icmp_unsigned("<", field, row.splat(16, _I8))
        chosen = b.select(low, *halves)
        b.store(chosen, row.address(tables, arguments[3], 0, _I8), align=1)
        return context.get_dummy_value()

    return signature, generate
