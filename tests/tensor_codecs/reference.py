"""A second reader, written from FORMAT.md alone, and plain twins of the kernels. Slow on purpose.

It reads sound blobs; what FORMAT.md refuses fails an assertion where that costs a line at most.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

import xxhash
import zstandard

from tensor_codecs.reference_rans import Raw, Table, decode_bytes, decode_rans, read_table, table

MANTISSAS = {7: 2, 8: 3, 10: 3, 11: 2, 14: 10, 15: 7, 18: 23, 19: 23, 20: 52}
"""Mantissa bits of the floats that have a sign."""
WIDTHS = {**dict.fromkeys(range(12), 1), **dict.fromkeys(range(12, 16), 2)}
WIDTHS |= {16: 4, 17: 4, 18: 4, 19: 4, 20: 8, 21: 8, 22: 8}
SHIFTS = {5: 1, 6: 2, 7: 2}
"""s of the codecs that write residuals."""
DELTA_CODECS = {3, 4, 5, 6, 7}


class Model(NamedTuple):
    """The tables of a tensor and the way from an element to its own."""

    tables: list[Table]
    lowest: int
    row: int
    choice: bytes
    classes: bytes


def decode_blob(blob: bytes, base: bytes | None = None) -> bytes:
    """Decode a sound blob of version 1."""
    magic, version, codec, dtype, flags = struct.unpack_from("<4s4B", blob)
    raw_nbytes, chunk_nbytes, model_nbytes = struct.unpack_from("<QII", blob, 8)
    assert (magic, version) == (bytes.fromhex("a7545342"), 1)
    assert 8 <= chunk_nbytes <= 1 << 20
    assert chunk_nbytes % 8 == 0
    assert flags == (codec in DELTA_CODECS) == (base is not None)
    entry_nbytes = 28 if flags else 20
    model_at = 24 + entry_nbytes * -(-raw_nbytes // chunk_nbytes)
    at = model_at + model_nbytes
    assert int.from_bytes(blob[at : at + 8], "little") == xxhash.xxh64_intdigest(blob[:at])
    model = read_model(blob[model_at:at], dtype, raw_nbytes) if model_nbytes else None
    at += 8
    raw = b""
    for entry in range(24, model_at, entry_nbytes):
        word, payload_hash, raw_hash = struct.unpack_from("<IQQ", blob, entry)
        nbytes = min(chunk_nbytes, raw_nbytes - len(raw))
        size, form = word % (1 << 30), word >> 30
        payload, at = blob[at : at + size], at + size
        own_base = None
        if base is not None:
            own_base = base[len(raw) : len(raw) + nbytes]
            base_hash = int.from_bytes(blob[entry + 20 : entry + 28], "little")
            assert xxhash.xxh64_intdigest(own_base) == base_hash
        assert xxhash.xxh64_intdigest(payload) == payload_hash
        chunk = decode_chunk(payload, nbytes, codec, dtype, form, own_base, model, len(raw))
        assert xxhash.xxh64_intdigest(chunk) == raw_hash
        raw += chunk
    assert at == len(blob)
    assert len(raw) == raw_nbytes
    return raw


def decode_chunk(
    payload: bytes,
    nbytes: int,
    codec: int,
    dtype: int,
    form: int,
    base: bytes | None,
    model: Model | None,
    at: int,
) -> bytes:
    """Decode the chunk of `nbytes` raw bytes that lies at byte `at` of the tensor."""
    if form == 1:
        assert len(payload) == nbytes
        return payload
    if form == 2 or (form == 0 and codec == 1):
        return unzstd(payload, nbytes)
    width = WIDTHS[dtype]
    if form == 0 and codec == 2:
        return decode_planar(payload, nbytes, width, dtype in MANTISSAS and width >= 2)
    assert base is not None
    if form == 3:
        delta = merge_tail_last(unzstd(payload, nbytes), nbytes, width)
    elif codec == 3:
        delta = decode_fields(unzstd(payload, nbytes_of_fields(nbytes, dtype)), nbytes, dtype)
    elif codec == 4:
        delta = decode_planar(payload, nbytes, width, dtype in MANTISSAS and width >= 4)
    else:
        assert model is not None
        return decode_residuals(payload, base, dtype, SHIFTS[codec], model, at // width)
    return bytes(d ^ b for d, b in zip(delta, base, strict=True))


def unzstd(frame: bytes, nbytes: int) -> bytes:
    """Decode one zstd frame that states its size."""
    parameters = zstandard.get_frame_parameters(frame)
    assert parameters.content_size == nbytes
    assert parameters.window_size <= 1 << 20
    return zstandard.ZstdDecompressor().decompress(frame, allow_extra_data=False)


def merge_tail_last(data: bytes, nbytes: int, width: int) -> bytes:
    """Undo byte planes that are followed by the bytes left over."""
    n = nbytes // width
    planes = [data[k * n : (k + 1) * n] for k in range(width)]
    return merge_planes(planes, False) + data[n * width :]


def decode_planar(payload: bytes, nbytes: int, width: int, rotated: bool) -> bytes:
    """Decode a planar chunk."""
    n, n_tail = divmod(nbytes, width)
    tail, at, planes = payload[:n_tail], n_tail, []
    for _ in range(width):
        plane, at = decode_plane(payload, at, n)
        planes.append(plane)
    assert at == len(payload)
    return merge_planes(planes, rotated) + tail


def decode_plane(payload: bytes, at: int, n: int) -> tuple[bytes, int]:
    """Decode the plane of n bytes at `at`; return it and where the next one starts."""
    mode = payload[at]
    if mode == 4:
        masks, at = decode_plane(payload, at + 1, -(-n // 8))
        bits = [mask >> k & 1 for mask in masks for k in range(8)]
        assert not any(bits[n:])
        values, at = decode_plane(payload, at, sum(bits))
        following = iter(values)
        return bytes(next(following) if bit else 0 for bit in bits[:n]), at
    if mode == 0:
        return payload[at + 1 : at + 1 + n], at + 1 + n
    if mode == 1:
        return payload[at + 1 : at + 2] * n, at + 2
    length = int.from_bytes(payload[at + 1 : at + 5], "little")
    stream = payload[at + 5 : at + 5 + length]
    if mode == 2:
        return decode_bytes(stream, n), at + 5 + length
    assert mode == 3
    return unzstd(stream, n), at + 5 + length


def split_planes(data: bytes, width: int, rotate: bool) -> list[bytes]:
    """Return the byte planes of `data`, a whole number of elements."""
    elements = to_elements(data, width)
    if rotate:
        elements = [(x << 1 | x >> (8 * width - 1)) % (1 << 8 * width) for x in elements]
    return [bytes(x >> 8 * k & 255 for x in elements) for k in range(width)]


def merge_planes(planes: list[bytes], rotate: bool) -> bytes:
    """Undo `split_planes`."""
    width = len(planes)
    elements = [int.from_bytes(bytes(column), "little") for column in zip(*planes, strict=True)]
    if rotate:
        elements = [x >> 1 | (x & 1) << (8 * width - 1) for x in elements]
    return to_bytes(elements, width)


def to_elements(data: bytes, width: int) -> list[int]:
    """Return the bits of each whole element of `data`."""
    n = len(data) // width
    return [int.from_bytes(data[i * width : (i + 1) * width], "little") for i in range(n)]


def to_bytes(elements: Sequence[int], width: int) -> bytes:
    """Undo `to_elements`."""
    return b"".join(x.to_bytes(width, "little") for x in elements)


def field_bits(dtype: int) -> list[int]:
    """Return the bits of each field of an element, the top one first."""
    bits = 8 * WIDTHS[dtype]
    if dtype not in MANTISSAS:
        return [8] * WIDTHS[dtype]
    return [1, bits - 1 - MANTISSAS[dtype], MANTISSAS[dtype]]


def nbytes_of_fields(nbytes: int, dtype: int) -> int:
    """Return the bytes that the fields of a chunk take, with the tail."""
    n, n_tail = divmod(nbytes, WIDTHS[dtype])
    return n_tail + sum(-(-n // 8) if b == 1 else n * -(-b // 8) for b in field_bits(dtype))


def decode_fields(data: bytes, nbytes: int, dtype: int) -> bytes:
    """Undo the split of n elements and a tail into fields."""
    n = nbytes // WIDTHS[dtype]
    elements, at = [0] * n, 0
    for bits in field_bits(dtype):
        if bits == 1:
            packed, at = data[at : at + -(-n // 8)], at + -(-n // 8)
            field = [packed[i // 8] >> i % 8 & 1 for i in range(n)]
            assert int.from_bytes(packed, "little") >> n == 0
        else:
            n_planes = -(-bits // 8)
            planes = [data[at + k * n : at + (k + 1) * n] for k in range(n_planes)]
            field, at = to_elements(merge_planes(planes, False), n_planes), at + n * n_planes
        elements = [x << bits | f for x, f in zip(elements, field, strict=True)]
    return to_bytes(elements, WIDTHS[dtype]) + data[at:]


def key(u: int, bits: int, is_float: bool) -> int:
    """Return the place of an element among all of its dtype."""
    if not is_float:
        return u
    return u ^ 1 << (bits - 1) if u >> (bits - 1) == 0 else u ^ ((1 << bits) - 1)


def unkey(place: int, bits: int, is_float: bool) -> int:
    """Undo `key`."""
    if not is_float:
        return place
    return place ^ 1 << (bits - 1) if place >> (bits - 1) else place ^ ((1 << bits) - 1)


def n_raw_bits(symbol: int, shift: int) -> int:
    """Return how many raw bits follow a symbol."""
    return max((symbol >> shift) - 1, 0)


def split_change(d: int, bits: int, shift: int) -> tuple[int, Raw]:
    """Return the symbol and the raw bits of a change of keys that lies in [0, 2^bits)."""
    signed = d - (1 << bits) if d >> (bits - 1) else d
    if shift == 1:
        if signed == 0:
            return 0, Raw(0, 0)
        k = abs(signed).bit_length() - 1
        return 2 * (k + 1) + (signed < 0), Raw(k, abs(signed) - (1 << k))
    z = 2 * signed if signed >= 0 else -2 * signed - 1
    if z < 4:
        return z, Raw(0, 0)
    k = z.bit_length() - 3
    return 4 * (k + 1) + (z >> k) % 4, Raw(k, z % (1 << k))


def merge_change(symbol: int, q: int, bits: int, shift: int) -> int:
    """Undo `split_change`."""
    k = n_raw_bits(symbol, shift)
    if shift == 1:
        magnitude = (1 << k) + q if symbol > 1 else 0
        return (-magnitude if symbol & 1 else magnitude) % (1 << bits)
    z = symbol if symbol < 4 else (4 + symbol % 4 << k) + q
    return (-(z + 1) // 2 if z & 1 else z // 2) % (1 << bits)


def context(base: int, dtype: int, lowest: int) -> int:
    """Return the field of an element of the base."""
    width, mantissa = WIDTHS[dtype], MANTISSAS.get(dtype)
    t = 8 * width - 1 if mantissa is None else mantissa if width >= 2 else 2
    return min(max((base % (1 << (8 * width - 1)) >> t) - lowest, 0), 31)


def table_of(base: int, at: int, dtype: int, model: Model) -> Table:
    """Return the table of the element `at` of the tensor."""
    if len(model.tables) == 1:
        return model.tables[0]
    row_class = model.classes[at // model.row] if model.row else 0
    return model.tables[model.choice[32 * row_class + context(base, dtype, model.lowest)]]


def decode_residuals(
    payload: bytes, base: bytes, dtype: int, shift: int, model: Model, first: int
) -> bytes:
    """Decode a chunk of residuals whose first element has the index `first` in the tensor."""
    width, is_float = WIDTHS[dtype], dtype in MANTISSAS
    bits, n_tail = 8 * width, len(base) % width
    bases = to_elements(base, width)
    tables = [table_of(b, first + i, dtype, model) for i, b in enumerate(bases)]
    symbols, raws = decode_rans(
        payload[n_tail:], tables, lambda s: n_raw_bits(s, shift), max(width // 2, 1)
    )
    elements = []
    for b, symbol, q in zip(bases, symbols, raws, strict=True):
        place = key(b, bits, is_float) + merge_change(symbol, q, bits, shift)
        elements.append(unkey(place % (1 << bits), bits, is_float))
    return to_bytes(elements, width) + payload[:n_tail]


def read_model(data: bytes, dtype: int, raw_nbytes: int) -> Model:
    """Read the model of a tensor."""
    n_tables, at, tables = data[0], 1, []
    for _ in range(n_tables):
        freqs, nbytes = read_table(data[at:])
        tables.append(table(freqs))
        at += nbytes
    if n_tables == 1:
        assert at == len(data)
        return Model(tables, 0, 0, bytes(32), b"")
    n_classes, lowest, row = struct.unpack_from("<BHI", data, at)
    rest = data[at + 7 :]
    assert (row > 0) == (n_classes > 1)
    if row:
        n_rows = -(-(raw_nbytes // WIDTHS[dtype]) // row)
        rest = unzstd(rest, 32 * n_classes + n_rows)
    model = Model(tables, lowest, row, rest[: 32 * n_classes], rest[32 * n_classes :])
    assert max(model.choice) < n_tables <= 64
    assert max(model.classes, default=0) < n_classes <= 32
    assert len(model.choice) == 32 * n_classes
    assert row or not model.classes
    return model
