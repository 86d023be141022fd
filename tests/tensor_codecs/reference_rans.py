"""The rANS streams and tables of FORMAT.md, one symbol at a time, with the encoder. Slow on purpose."""

import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple


class Table(NamedTuple):
    """A frequency table: f and F by symbol, and the symbol of each of the 4096 slots."""

    freqs: dict[int, int]
    starts: dict[int, int]
    owner: list[int]


class Raw(NamedTuple):
    """Raw bits of one symbol: how many, and their value."""

    nbits: int
    value: int


def table(freqs: dict[int, int]) -> Table:
    """Return the table of the given frequencies."""
    symbols = sorted(freqs)
    starts, start = {}, 0
    for s in symbols:
        starts[s] = start
        start += freqs[s]
    assert start == 4096
    return Table(freqs, starts, [s for s in symbols for _ in range(freqs[s])])


def read_table(stream: bytes) -> tuple[dict[int, int], int]:
    """Return the frequencies by symbol, ascending, and the length of the written table."""
    last = stream[0]
    at = 1 + last // 8 + 1
    freqs = {}
    for s in range(last + 1):
        if stream[1 + s // 8] >> s % 8 & 1:
            v = stream[at]
            at += 1
            if v >= 128:
                v = v - 128 + 128 * stream[at]
                at += 1
            freqs[s] = v + 1
    assert sum(freqs.values()) == 4096
    return freqs, at


def write_table(freqs: dict[int, int]) -> bytes:
    """Undo `read_table`."""
    last = max(freqs)
    present = sum(1 << s for s in freqs).to_bytes(last // 8 + 1, "little")
    body = b""
    for s in sorted(freqs):
        v = freqs[s] - 1
        body += bytes((v,)) if v < 128 else bytes((128 + v % 128, v // 128))
    return bytes((last,)) + present + body


def encode_bytes(symbols: bytes, freqs: dict[int, int]) -> bytes:
    """Code the bytes of a plane: a table and a stream."""
    return write_table(freqs) + encode_rans(symbols, [table(freqs)] * len(symbols))


def decode_bytes(stream: bytes, n: int) -> bytes:
    """Undo `encode_bytes`."""
    freqs, at = read_table(stream)
    return bytes(decode_rans(stream[at:], [table(freqs)] * n, lambda _: 0, 0)[0])


def n_lanes(n: int) -> int:
    """Return the lanes of a stream of n symbols."""
    return 32 if n >= 4096 else 4


def raw_pass(nbits: int, number: int) -> int:
    """Return how many of the raw bits of a symbol the pass takes."""
    return min(max(nbits - 16 * number, 0), 16)


def encode_rans(
    symbols: Sequence[int], tables: Sequence[Table], raws: Sequence[Raw] = (), n_passes: int = 0
) -> bytes:
    """Code `symbols`, each by its own table, and their raw bits; return states and words."""
    n, words = len(symbols), list[int]()
    lanes = n_lanes(n)
    states = [1 << 16] * lanes
    for first in reversed(range(0, n, lanes)):
        row = range(first, min(first + lanes, n))
        for number in reversed(range(n_passes)):
            for i in row:
                j = raw_pass(raws[i].nbits, number)
                x = shortened(states[i % lanes], 1 << (32 - j), words)
                states[i % lanes] = (x << j) + (raws[i].value >> 16 * number) % (1 << j)
        for i in row:
            s, own = symbols[i], tables[i]
            x = shortened(states[i % lanes], own.freqs[s] << 20, words)
            states[i % lanes] = 4096 * (x // own.freqs[s]) + x % own.freqs[s] + own.starts[s]
    return struct.pack(f"<{lanes}I{len(words)}H", *states, *words)


def shortened(x: int, limit: int, words: list[int]) -> int:
    """Return the state with room below `limit`; what it had too much goes to `words`."""
    if x < limit:
        return x
    words.append(x % (1 << 16))
    return x >> 16


def refilled(x: int, words: list[int]) -> int:
    """Return the state with a word of `words` if it is short of one."""
    return x if x >= 1 << 16 else (x << 16) + words.pop()


def decode_rans(
    stream: bytes, tables: Sequence[Table], raw_bits: Callable[[int], int], n_passes: int
) -> tuple[list[int], list[int]]:
    """Decode a sound stream of a symbol for each of `tables`; return them and their raw bits."""
    n = len(tables)
    lanes = n_lanes(n)
    states = list(struct.unpack_from(f"<{lanes}I", stream))
    words = list(struct.unpack(f"<{(len(stream) - 4 * lanes) // 2}H", stream[4 * lanes :]))
    assert min(states) >= 1 << 16
    symbols, raws = [0] * n, [0] * n
    for first in range(0, n, lanes):
        row = range(first, min(first + lanes, n))
        for i in reversed(row):
            x, own = states[i % lanes], tables[i]
            s = symbols[i] = own.owner[x % 4096]
            x = own.freqs[s] * (x // 4096) + x % 4096 - own.starts[s]
            states[i % lanes] = refilled(x, words)
        for number in range(n_passes):
            for i in reversed(row):
                x = states[i % lanes]
                j = raw_pass(raw_bits(symbols[i]), number)
                raws[i] += x % (1 << j) << 16 * number
                states[i % lanes] = refilled(x >> j, words)
    assert not words
    assert states == [1 << 16] * lanes
    return symbols, raws
