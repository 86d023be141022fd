"""Byte statistics of a tensor, and what they say about storing it without a base."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tstore.ids import Buffer
from tstore.settings import KIB
from tstore.sketch.kernels import plane_histograms
from tstore_codecs.dtypes import dtype_by_name

FRAME_NBYTES = 48
"""What a blob takes besides its planes."""
TABLE_NBYTES = 80
"""What the code table of one plane takes, roughly."""
SAMPLE_BLOCKS = 32
SAMPLE_BLOCK_NBYTES = 4 * KIB
"""128 KiB are looked at: the entropy of 256 values from 64 Ki of them errs by 0.003 bits, and
many small blocks see the rows of an embedding that differ. A multiple of every unit width."""


def plane_entropies(data: Buffer, dtype: str) -> NDArray[np.float32]:
    """Order-0 entropy of each byte plane, after the rotation that the `zipnn` codec applies.

    Parameters
    ----------
    data : Buffer
        Raw bytes of a tensor. Bytes after the last whole unit are left out.
    dtype : str
        A safetensors dtype; it fixes the unit (bf16 two bytes, f32 four). Packed and opaque
        types have one plane.

    Returns
    -------
    float32 (width,)
        Bits per byte, lowest plane first; 0 for a plane without bytes.

    Raises
    ------
    UnsupportedDtypeError
        The dtype is not one of safetensors.
    """
    unit = dtype_by_name(dtype)
    raw = np.frombuffer(data, dtype=np.uint8)
    sample = _sample(raw)
    units = sample[: sample.size // unit.width * unit.width].reshape(-1, unit.width)
    units.flags.writeable = False  # one compiled variant for all callers
    counts = np.zeros((unit.width, 256), dtype=np.int64)
    plane_histograms(units, unit.signed_float, counts)
    return _entropy(counts).astype(np.float32)


def _sample(raw: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """All of a small tensor, or evenly spaced blocks from its first to its last."""
    n_blocks = raw.size // SAMPLE_BLOCK_NBYTES
    if n_blocks <= SAMPLE_BLOCKS:
        return raw
    blocks = raw[: n_blocks * SAMPLE_BLOCK_NBYTES].reshape(n_blocks, SAMPLE_BLOCK_NBYTES)
    chosen = np.arange(SAMPLE_BLOCKS) * (n_blocks - 1) // (SAMPLE_BLOCKS - 1)
    return blocks[chosen].ravel()


def _entropy(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Entropy in bits of each row of counts."""
    total = counts.sum(axis=1, keepdims=True)
    share = counts / np.maximum(total, 1)
    logs = np.log2(share, out=np.zeros_like(share), where=share > 0)
    entropy: NDArray[np.float64] = -(share * logs).sum(axis=1)
    return entropy


def standalone_ratio(entropies: NDArray[np.float32], nbytes: int) -> float:
    """Predicted stored/raw of a codec that codes each plane with order 0, or leaves it raw.

    Parameters
    ----------
    entropies : float32 (planes,)
        From `plane_entropies`.
    nbytes : int
        Size of the tensor, at least 1: tables and headers decide what a small one takes.

    Returns
    -------
    float
        At least 0; above 1 where the frame weighs more than what is saved.
    """
    plane_nbytes = nbytes / entropies.size
    coded = plane_nbytes * entropies.astype(np.float64) / 8 + TABLE_NBYTES
    planes = np.minimum(coded, plane_nbytes).sum()
    return float((planes + FRAME_NBYTES) / nbytes)
