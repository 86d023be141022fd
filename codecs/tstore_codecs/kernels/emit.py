"""The vector operations that rows of rANS lanes are made of, emitted as LLVM IR."""

from __future__ import annotations

import functools
from typing import Any

from llvmlite import ir

from tstore_codecs.kernels.lanes import BITS_PER_PASS, LANES

I8, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
F32 = ir.FloatType()


def _permutations() -> tuple[list[list[int]], list[list[int]]]:
    """Return, for each 8-bit mask of due lanes, where to take words from to expand and compress."""
    expand, compress = [], []
    for mask in range(256):
        due = [lane for lane in range(8) if mask >> lane & 1]
        expand.append([due.index(lane) if lane in due else 0 for lane in range(8)])
        compress.append(due + [0] * (8 - len(due)))
    return expand, compress


_EXPAND, _COMPRESS = _permutations()


class Row:
    """Emits the operations of a row of lanes on vectors of `width` of them."""

    def __init__(self, context: Any, builder: Any, width: int) -> None:
        self.context, self.builder, self.width = context, builder, width
        self.groups = range(LANES // width)

    def vector(self, element: Any) -> Any:
        return ir.VectorType(element, self.width)

    def splat(self, value: float, element: Any = I32) -> Any:
        return ir.Constant(self.vector(element), [value] * self.width)

    def broadcast(self, value: Any) -> Any:
        """Return a vector of copies of the i64 `value`, as u32."""
        b, undefined = self.builder, ir.Constant(self.vector(I32), ir.Undefined)
        first = b.insert_element(undefined, b.trunc(value, I32), ir.Constant(I32, 0))
        return b.shuffle_vector(first, undefined, self.splat(0))

    def data(self, array_type: Any, array: Any) -> Any:
        return self.context.make_array(array_type)(self.context, self.builder, array).data

    def address(self, data: Any, at: Any, offset: int, element: Any) -> Any:
        """Return a pointer to a vector of `element` at ``data[at + offset]``."""
        b = self.builder
        at = b.add(at, ir.Constant(I64, offset))
        return b.bitcast(b.gep(data, [at]), self.vector(element).as_pointer())

    def load(self, data: Any, at: Any, offset: int, element: Any) -> Any:
        """Return unaligned elements, widened to u32."""
        address = self.address(data, at, offset, element)
        loaded = self.builder.load(address, align=element.width // 8)
        return loaded if element is I32 else self.builder.zext(loaded, self.vector(I32))

    def store(self, value: Any, data: Any, at: Any, offset: int, element: Any) -> None:
        """Store u32 elements, narrowed to `element`."""
        if element is not I32:
            value = self.builder.trunc(value, self.vector(element))
        address = self.address(data, at, offset, element)
        self.builder.store(value, address, align=element.width // 8)

    def lookup(self, data: Any, index: Any) -> Any:
        """Return ``data[index]``, u32."""
        b, vector = self.builder, self.vector(I32)
        if self.width == 8:
            # LLVM takes its generic gather apart where it deems the instruction slow.
            pointer = I8.as_pointer()
            gather = self.function(
                "llvm.x86.avx2.gather.d.d.256", vector, [vector, pointer, vector, vector, I8]
            )
            zeros, every, scale = self.splat(0), self.splat(0xFFFFFFFF), ir.Constant(I8, 4)
            return b.call(gather, [zeros, b.bitcast(data, pointer), index, every, scale])
        found = ir.Constant(vector, ir.Undefined)
        for lane in range(self.width):
            place = ir.Constant(I32, lane)
            at = b.zext(b.extract_element(index, place), I64)
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
        return mask, b.zext(b.call(population, [mask]), I64)

    def permute(self, words: Any, table: list[list[int]], name: str, mask: Any) -> Any:
        """Return 8 `words` in the order that `table` has for `mask`."""
        b, vector = self.builder, self.vector(I32)
        row_type = ir.ArrayType(I8, 8)
        table_type = ir.ArrayType(row_type, 256)
        known = b.module.globals
        if name not in known:
            constant = ir.GlobalVariable(b.module, table_type, name)
            constant.linkage, constant.global_constant = "internal", True
            rows = [ir.Constant(row_type, row) for row in table]
            constant.initializer = ir.Constant(table_type, rows)
        zero = ir.Constant(I64, 0)
        row = b.gep(known[name], [zero, b.zext(mask, I64), zero])
        order = b.load(b.bitcast(row, self.vector(I8).as_pointer()), align=1)
        permd = self.function("llvm.x86.avx2.permd", vector, [vector, vector])
        return b.call(permd, [words, b.zext(order, vector)])

    def pop(self, words: Any, height: Any, due: Any) -> tuple[Any, Any]:
        """Return a word for each due lane, and the new height of the stack."""
        b = self.builder
        mask, count = self.count(due)
        height = b.sub(height, count)
        if self.width == 8:
            loaded = self.load(words, height, 0, I16)
            return self.permute(loaded, _EXPAND, ".tstore.expand", mask), height
        vector = self.vector(I16)
        expand = self.function(
            f"llvm.masked.expandload.v{self.width}i16",
            vector,
            [I16.as_pointer(), self.vector(ir.IntType(1)), vector],
        )
        pointer = b.bitcast(b.gep(words, [height]), I16.as_pointer())
        loaded = b.call(expand, [pointer, due, ir.Constant(vector, [0] * self.width)])
        return b.zext(loaded, self.vector(I32)), height

    def push(self, words: Any, height: Any, due: Any, states: Any) -> Any:
        """Push the low word of each due lane; return the new height of the stack.

        Whole vectors are stored: the next push covers the excess, the last one falls on padding.
        """
        b = self.builder
        mask, count = self.count(due)
        if self.width == 8:
            packed = self.permute(states, _COMPRESS, ".tstore.compress", mask)
            self.store(packed, words, height, 0, I16)
        else:
            vector = self.vector(I16)
            compress = self.function(
                f"llvm.experimental.vector.compress.v{self.width}i16",
                vector,
                [vector, self.vector(ir.IntType(1)), vector],
            )
            undefined = ir.Constant(vector, ir.Undefined)
            packed = b.call(compress, [b.trunc(states, vector), due, undefined])
            b.store(packed, self.address(words, height, 0, I16), align=2)
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
            symbol = self.load(symbols, at, group * self.width, I8)
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
        value = b.phi(I64)
        value.add_incoming(unchanged, before)
        value.add_incoming(changed, some)
        return value
