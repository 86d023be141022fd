"""Small tensors: no codec may lose to the general ones, whatever its tables cost."""

import numpy as np
import pytest
import zstandard

import tstore_codecs as tc
from tensor_codecs.samples import ByteArray, weights
from tstore_codecs.registry import CODECS

SIZES = (1, 13, 16, 17, 128, 515, 2048, 4097, 6000)
OVERHEAD = 64


def pairs(dtype: str, nbytes: int) -> dict[str, tuple[ByteArray, ByteArray]]:
    """Return targets and bases by a name for the message."""
    rng = np.random.default_rng(nbytes)
    base = weights(dtype, nbytes)
    constant = np.tile(weights(dtype, 8, seed=3), -(-nbytes // 8))[:nbytes]
    target, noise = rng.integers(0, 256, (2, nbytes), np.uint8)
    return {
        "trained": (weights(dtype, nbytes, seed=1), base),
        "fine-tuned": (weights(dtype, nbytes, step=1e-4), base),
        "the base": (base.copy(), base),
        "zeros": (np.zeros(nbytes, np.uint8), base),
        "constant": (constant, base),
        "zeros from zeros": (np.zeros(nbytes, np.uint8), np.zeros(nbytes, np.uint8)),
        "random": (target, noise),
    }


@pytest.mark.parametrize("dtype", ["BF16", "F16", "F32", "F8_E4M3"])
@pytest.mark.parametrize("codec", [codec for codec in tc.available() if codec != "stored"])
def test_no_codec_loses_on_small_tensors(codec: str, dtype: str) -> None:
    zstd = zstandard.ZstdCompressor(level=3).compress
    for nbytes in SIZES:
        for name, (target, base) in pairs(dtype, nbytes).items():
            rivals = [nbytes, len(zstd(target.data))]
            own_base = base if CODECS[codec].needs_base else None
            if own_base is not None:
                rivals.append(len(zstd((target ^ base).data)))
            blob = tc.encode(target, dtype=dtype, codec=codec, base=own_base)
            assert tc.decode(blob, base=own_base).tobytes() == target.tobytes()
            assert len(blob) <= min(rivals) + OVERHEAD, (name, nbytes)
