"""A second reader, written from FORMAT.md alone, and plain twins of the kernels. Slow on purpose."""

import struct

import xxhash
import zstandard

SIGNED_FLOATS = {7, 8, 10, 11, 14, 15, 18, 19, 20}
WIDTHS = {**dict.fromkeys(range(12), 1), **dict.fromkeys(range(12, 16), 2)}
WIDTHS |= {16: 4, 17: 4, 18: 4, 19: 4, 20: 8, 21: 8, 22: 8}


def decode_blob(blob: bytes, base: bytes | None = None) -> bytes:
    """Decode a sound blob of version 1."""
    magic, version, codec, dtype, flags = struct.unpack_from("<4s4B", blob)
    raw_nbytes, chunk_nbytes, n_chunks, target_hash = struct.unpack_from("<QIIQ", blob, 8)
    assert magic == bytes.fromhex("a7545342")
    assert version == 1
    assert int.from_bytes(blob[-8:], "little") == xxhash.xxh64_intdigest(blob[:-8])
    at = 32
    if flags & 1:
        assert base is not None
        assert int.from_bytes(blob[32:40], "little") == xxhash.xxh64_intdigest(base)
        at = 40
    sizes = struct.unpack_from(f"<{n_chunks}I", blob, at)
    at += 4 * n_chunks
    raw = b""
    for size in sizes:
        nbytes = min(chunk_nbytes, raw_nbytes - len(raw))
        payload = blob[at : at + size]
        at += size
        if size == nbytes:
            raw += payload
        elif codec == 1:
            raw += zstandard.ZstdDecompressor().decompress(payload)
        else:
            raw += decode_planar(payload, nbytes, codec, dtype, base and base[len(raw) :])
    assert at == len(blob) - 8
    assert xxhash.xxh64_intdigest(raw) == target_hash
    return raw


def decode_planar(payload: bytes, nbytes: int, codec: int, dtype: int, base: bytes | None) -> bytes:
    """Decode a planar chunk of codec 2 (zipnn) or 4 (tensorx)."""
    width = WIDTHS[dtype]
    n, n_tail = divmod(nbytes, width)
    rotated = dtype in SIGNED_FLOATS and width >= {2: 2, 4: 4}[codec]
    tail, at, planes = payload[:n_tail], n_tail, []
    for _ in range(width):
        plane, at = decode_plane(payload, at, n)
        planes.append(plane)
    assert at == len(payload)
    chunk = merge_planes(planes, rotated) + tail
    if codec == 4:
        assert base is not None
        chunk = bytes(c ^ b for c, b in zip(chunk, base[:nbytes], strict=True))
    return chunk


def decode_plane(payload: bytes, at: int, n: int) -> tuple[bytes, int]:
    """Decode the plane of n bytes at `at`; return it and where the next one starts."""
    mode = payload[at]
    if mode == 0:
        return payload[at + 1 : at + 1 + n], at + 1 + n
    if mode == 1:
        return payload[at + 1 : at + 2] * n, at + 2
    length = int.from_bytes(payload[at + 1 : at + 5], "little")
    stream = payload[at + 5 : at + 5 + length]
    if mode == 2:
        return decode_rans(stream, n), at + 5 + length
    assert mode == 3
    return zstandard.ZstdDecompressor().decompress(stream), at + 5 + length


def split_planes(data: bytes, width: int, rotate: bool) -> list[bytes]:
    """Return the byte planes of `data`, a whole number of elements."""
    elements = [int.from_bytes(data[i : i + width], "little") for i in range(0, len(data), width)]
    if rotate:
        elements = [(x << 1 | x >> (8 * width - 1)) % (1 << 8 * width) for x in elements]
    return [bytes(x >> 8 * k & 255 for x in elements) for k in range(width)]


def merge_planes(planes: list[bytes], rotate: bool) -> bytes:
    """Undo `split_planes`."""
    width = len(planes)
    data = b""
    for column in zip(*planes, strict=True):
        x = int.from_bytes(bytes(column), "little")
        if rotate:
            x = x >> 1 | (x & 1) << (8 * width - 1)
        data += x.to_bytes(width, "little")
    return data


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


def _starts(freqs: dict[int, int]) -> dict[int, int]:
    return {s: sum(f for t, f in freqs.items() if t < s) for s in freqs}


def encode_rans(symbols: bytes, freqs: dict[int, int]) -> bytes:
    """Code `symbols` one at a time."""
    starts, states, words = _starts(freqs), [1 << 16] * 64, []
    rows = range(0, len(symbols), 64)
    for first in reversed(rows):
        for lane, s in enumerate(symbols[first : first + 64]):
            x = states[lane]
            if x >= freqs[s] << 20:
                words.append(x % 65536)
                x //= 65536
            states[lane] = 4096 * (x // freqs[s]) + x % freqs[s] + starts[s]
    return write_table(freqs) + struct.pack(f"<64I{len(words)}H", *states, *words)


def decode_rans(stream: bytes, n: int) -> bytes:
    """Decode a sound stream of n symbols."""
    freqs, at = read_table(stream)
    starts = _starts(freqs)
    owner = [s for s, f in freqs.items() for _ in range(f)]
    states = list(struct.unpack_from("<64I", stream, at))
    words = list(struct.unpack(f"<{(len(stream) - at - 256) // 2}H", stream[at + 256 :]))
    symbols = bytearray(n)
    for first in range(0, n, 64):
        for lane in reversed(range(min(64, n - first))):
            x = states[lane]
            s = symbols[first + lane] = owner[x % 4096]
            x = freqs[s] * (x // 4096) + x % 4096 - starts[s]
            states[lane] = x if x >= 1 << 16 else x * 65536 + words.pop()
    assert not words
    assert states == [1 << 16] * 64
    return bytes(symbols)
