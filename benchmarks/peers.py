"""Other people's coders, each on one thread and as fast as its interface lets it.

A peer that is not installed is left out. Those without a delta mode get what their users would
give them: the XOR with the base, or the difference of ordered integers where the coder is made
for numbers.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import zstandard

from benchmarks.contestants import Contestant
from benchmarks.data import WIDTHS, ByteArray, Tensor

Words = npt.NDArray[Any]

ZIPNN, XOR_PLANES = "zipnn (peer)", "xor planes zstd-1"

_BLOCK = 1 << 20


def peers(*, delta: bool) -> tuple[list[Contestant], list[str]]:
    """Return the peers that run here, and the modules that the others lack."""
    found, missing = [_zstd(1), _zstd(3)], []
    if delta:
        found = [_xor_planes()]
    makers: dict[str, Callable[[ModuleType], Contestant]] = {
        "zipnn": _zipnn,
        "openzl.ext": _openzl,
        "pcodec": _pcodec,
        "lmz.codec": _lmzip,
    }
    for module, make in makers.items():
        try:
            found.append(make(_imported(module)))
        except ModuleNotFoundError as error:
            missing.append(f"{module} ({error.name})")
    return found, missing


def _imported(module: str) -> ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch has deprecated what zipnn uses
        return importlib.import_module(module)


def _xor(tensor: Tensor) -> ByteArray:
    """Return what a coder without deltas gets: the XOR with the base, if there is one."""
    return tensor.data if tensor.base is None else tensor.data ^ tensor.base


def _unxor(delta: Any, tensor: Tensor) -> Any:
    """Undo `_xor`."""
    return delta if tensor.base is None else np.frombuffer(delta, np.uint8) ^ tensor.base


def _zstd(level: int) -> Contestant:
    coder, decoder = zstandard.ZstdCompressor(level=level), zstandard.ZstdDecompressor()
    return Contestant(
        f"zstd-{level}",
        lambda tensor, _: [coder.compress(tensor.data.data)],
        lambda coded, tensor: decoder.decompress(coded[0]),
    )


def _xor_planes() -> Contestant:
    """XOR, byte planes, zstd: what TStore calls BitX, in blocks that stay in the cache."""
    coder, decoder = zstandard.ZstdCompressor(level=1), zstandard.ZstdDecompressor()

    def encode(tensor: Tensor, _: None) -> list[bytes]:
        base, width = _base(tensor), WIDTHS[tensor.dtype]
        frames = []
        for at in range(0, tensor.nbytes, _BLOCK):
            delta = tensor.data[at : at + _BLOCK] ^ base[at : at + _BLOCK]
            planes = np.ascontiguousarray(delta.reshape(-1, width).T)
            frames += [coder.compress(plane.data) for plane in planes]
        return frames

    def decode(coded: Sequence[Any], tensor: Tensor) -> ByteArray:
        base, width = _base(tensor), WIDTHS[tensor.dtype]
        out, frames = np.empty(tensor.nbytes, np.uint8), iter(coded)
        for at in range(0, tensor.nbytes, _BLOCK):
            part = out[at : at + _BLOCK]
            for plane in part.reshape(-1, width).T:
                plane[:] = np.frombuffer(decoder.decompress(next(frames)), np.uint8)
            part ^= base[at : at + _BLOCK]
        return out

    return Contestant(XOR_PLANES, encode, decode)


def _zipnn(module: ModuleType) -> Contestant:
    names = {"BF16": "bfloat16", "F32": "float32", "F8_E4M3": "float8_e4m3fn"}

    def coder(tensor: Tensor) -> Any:
        return module.ZipNN(bytearray_dtype=names[tensor.dtype], threads=1)

    def encode(tensor: Tensor, prepared: tuple[Any, bytearray]) -> list[Any]:
        zipnn, buffer = prepared
        if tensor.base is not None:
            np.bitwise_xor(tensor.data, tensor.base, out=np.frombuffer(buffer, np.uint8))
        return [zipnn.compress(buffer)]

    return Contestant(
        ZIPNN,
        encode,
        lambda coded, tensor: _unxor(coder(tensor).decompress(coded[0]), tensor),
        # It rearranges the buffer that it compresses: each time needs a fresh one.
        lambda tensor: (coder(tensor), bytearray(tensor.data)),
    )


def _openzl(zl: ModuleType) -> Contestant:
    """Exponent apart and entropy coded, alone; every byte plane of a delta entropy coded."""
    graphs, nodes = zl.graphs, zl.nodes
    floats = {"BF16": nodes.BFloat16Deconstruct, "F32": nodes.Float32Deconstruct}

    def graph(compressor: Any, dtype: str, delta: bool) -> Any:
        if WIDTHS[dtype] == 1:
            return graphs.Fse()(compressor)
        if delta:
            planes = nodes.TransposeSplit()(compressor, graphs.Fse()(compressor))
            return nodes.ConvertNumToStructLE()(compressor, planes)
        return floats[dtype]()(compressor, graphs.Store()(compressor), graphs.Huffman()(compressor))

    def prepare(tensor: Tensor) -> Any:
        compressor = zl.Compressor()
        compressor.set_parameter(zl.CParam.FormatVersion, zl.MAX_FORMAT_VERSION)
        delta = tensor.base is not None
        compressor.select_starting_graph(graph(compressor, tensor.dtype, delta))
        return compressor

    def encode(tensor: Tensor, compressor: Any) -> list[bytes]:
        context = zl.CCtx()
        context.ref_compressor(compressor)
        width = WIDTHS[tensor.dtype]
        kind = zl.Type.Serial if width == 1 else zl.Type.Numeric
        words = _xor(tensor).view(f"<u{width}")  # an Input does not keep it alive
        return [context.compress([zl.Input(kind, words)])]

    def decode(coded: Sequence[Any], tensor: Tensor) -> Any:
        (output,) = zl.DCtx().decompress(coded[0])
        return _unxor(output.content.as_nparray().view(np.uint8), tensor)

    return Contestant("openzl", encode, decode, prepare)


def _pcodec(module: ModuleType) -> Contestant:
    """Level 8. It may look for a mode where it knows the type: elsewhere none helps."""
    standalone = importlib.import_module("pcodec.standalone")
    floats = module.ChunkConfig(compression_level=8)
    integers = module.ChunkConfig(
        compression_level=8,
        mode_spec=module.ModeSpec.classic(),
        delta_spec=module.DeltaSpec.no_op(),
        enable_8_bit=True,
    )

    def encode(tensor: Tensor, _: None) -> list[bytes]:
        width = WIDTHS[tensor.dtype]
        words = tensor.data.view(f"<u{width}")
        if tensor.base is not None:
            change = _keys(words) - _keys(tensor.base.view(words.dtype))
            return [standalone.simple_compress(change.view(f"<i{width}"), integers)]
        if tensor.dtype == "F32":
            return [standalone.simple_compress(tensor.data.view(np.float32), floats)]
        return [standalone.simple_compress(words, integers)]

    def decode(coded: Sequence[Any], tensor: Tensor) -> Any:
        words = standalone.simple_decompress(coded[0]).view(f"<u{WIDTHS[tensor.dtype]}")
        if tensor.base is not None:
            words = _patterns(words + _keys(tensor.base.view(words.dtype)))
        return words.view(np.uint8)

    return Contestant("pcodec", encode, decode)


def _lmzip(codec: ModuleType) -> Contestant:
    """Its chunks of 8 MiB without the files around, and with its checksums."""
    lmz = importlib.import_module("lmz")
    block = lmz.DEFAULT_CHUNK_SIZE
    kinds = {"BF16": codec.KIND_BF16}

    def encode(tensor: Tensor, _: None) -> list[Any]:
        base, width = tensor.base, WIDTHS[tensor.dtype]
        kind = kinds.get(tensor.dtype, codec.KIND_BYTES)
        coded = []
        for at in range(0, tensor.nbytes, block):
            ours = tensor.data[at : at + block].data
            if base is None:
                payload, number, flags, crc = codec.encode_chunk(ours, width, kind=kind)
            else:
                theirs = base[at : at + block].data
                payload, flags, crc = codec.encode_delta(ours, theirs, width, kind=kind)
                number = codec.CODEC_DELTA
            payload = payload if isinstance(payload, list) else [payload]
            coded += [b"".join(payload), bytes((number, flags)) + crc.to_bytes(4, "little")]
        return coded

    def decode(coded: Sequence[Any], tensor: Tensor) -> Any:
        width, parts = WIDTHS[tensor.dtype], []
        for i, at in enumerate(range(0, tensor.nbytes, block)):
            payload, head = coded[2 * i : 2 * i + 2]
            number, flags, crc = head[0], head[1], int.from_bytes(head[2:], "little")
            n = min(block, tensor.nbytes - at)
            if tensor.base is None:
                part = codec.decode_chunk(payload, number, width, flags, n, crc)
            else:
                base = tensor.base[at : at + block].data
                part = codec.decode_delta(payload, width, flags, n, base, crc)
            parts.append(part)
        return b"".join(parts)

    return Contestant("lmzip", encode, decode)


def _base(tensor: Tensor) -> ByteArray:
    if tensor.base is None:
        raise ValueError("expected a tensor with a base; found one alone")
    return tensor.base


def _keys(bits: Words) -> Words:
    """Return unsigned integers in the order of the floats with these bits."""
    half = bits.dtype.type(1 << (8 * bits.itemsize - 1))
    return np.where(bits >= half, ~bits, bits ^ half)


def _patterns(keys: Words) -> Words:
    """Undo `_keys`."""
    half = keys.dtype.type(1 << (8 * keys.itemsize - 1))
    return np.where(keys >= half, keys ^ half, ~keys)
