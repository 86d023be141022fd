"""Every bit pattern of a float survives: NaNs with payloads, signed zeros, subnormals."""

import numpy as np
import pytest

import tstore_codecs as tc
from tensor_codecs import reference
from tensor_codecs.samples import ByteArray, special_floats
from tstore_codecs.dtypes import DTYPES
from tstore_codecs.registry import CODECS

DELTA = [name for name in tc.available() if CODECS[name].needs_base]
FLOATS = [name for name, dtype in DTYPES.items() if dtype.signed_float]
BASES_OF_16_BITS = {
    "F16": (0x0000, 0x8000, 0x0001, 0x3C00, 0xFBFF, 0x7C00, 0xFE01, 0xFFFF),
    "BF16": (0x0000, 0x8000, 0x0001, 0x3F80, 0xFF7F, 0x7F80, 0xFFC1, 0xFFFF),
}


def check_coded_chunk(codec: str, dtype: str, target: ByteArray, base: ByteArray) -> None:
    """Code and decode one chunk, also where a blob would rather keep it raw."""
    coder, kind = CODECS[codec], DTYPES[dtype]
    model = coder.fit(target, base, kind, 0, map)
    written = np.frombuffer(coder.write_model(model), np.uint8)
    payload = np.frombuffer(coder.encode_chunk(model, 0, target, base, kind), np.uint8)
    back = np.empty_like(target)
    read = coder.read_model(written, kind, target.size)
    coder.decode_chunk(read, 0, payload, base, back, kind)
    assert back.tobytes() == target.tobytes()


def frozen(array: ByteArray) -> ByteArray:
    """Return a copy that cannot be written, as codecs get theirs."""
    copy = array.copy()
    copy.flags.writeable = False
    return copy


@pytest.mark.parametrize("codec", tc.available())
@pytest.mark.parametrize("dtype", FLOATS)
def test_all_pairs_of_special_floats(codec: str, dtype: str) -> None:
    units = special_floats(DTYPES[dtype].width).view(f"<u{DTYPES[dtype].width}")
    target, base = (grid.reshape(-1).view(np.uint8) for grid in np.meshgrid(units, units))
    own_base = base if CODECS[codec].needs_base else None
    blob = tc.encode(target, dtype=dtype, codec=codec, base=own_base)
    assert tc.decode(blob, base=own_base).tobytes() == target.tobytes()
    twin = reference.decode_blob(blob, None if own_base is None else own_base.tobytes())
    assert twin == target.tobytes()
    if own_base is not None:
        check_coded_chunk(codec, dtype, frozen(target), frozen(base))


@pytest.mark.parametrize("codec", DELTA)
@pytest.mark.parametrize("dtype", BASES_OF_16_BITS)
def test_all_patterns_of_16_bits(codec: str, dtype: str) -> None:
    target = frozen(np.arange(1 << 16, dtype="<u2").view(np.uint8))
    for pattern in BASES_OF_16_BITS[dtype]:
        base = frozen(np.full(1 << 16, pattern, "<u2").view(np.uint8))
        check_coded_chunk(codec, dtype, target, base)


@pytest.mark.parametrize("codec", DELTA)
@pytest.mark.parametrize("dtype", [name for name in DTYPES if name.startswith("F8")])
def test_all_pairs_of_8_bits(codec: str, dtype: str) -> None:
    target = frozen(np.tile(np.arange(256, dtype=np.uint8), 256))
    base = frozen(np.repeat(np.arange(256, dtype=np.uint8), 256))
    check_coded_chunk(codec, dtype, target, base)


def test_keys_have_the_order_of_the_numbers() -> None:
    patterns = np.arange(1 << 16, dtype=np.uint16)
    numbers = patterns[~np.isnan(patterns.view(np.float16))]
    by_key = sorted(numbers.tolist(), key=lambda u: reference.key(u, 16, True))
    assert by_key[: len(by_key) // 2 + 1][-2:] == [0x8000, 0x0000]
    assert np.all(np.diff(np.array(by_key, np.uint16).view(np.float16)) >= 0)
