"""TensorSketch: fingerprints whose distance estimates how many bits differ (TStore, §4.2)."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tstore.ids import Buffer
from tstore.settings import SketchSettings
from tstore.sketch.kernels import GOLDEN, LANES, accumulate, mix64
from tstore.sketch.layout import SketchLayout

WORD_NBYTES = 8
_INT16 = np.iinfo(np.int16)


def build(data: Buffer, dtype: str, settings: SketchSettings) -> NDArray[np.int16]:
    """Sketch of the bits of one tensor (TStore, Algorithm 1).

    Parameters
    ----------
    data : Buffer
        The raw bytes; may be read-only, unaligned and of any length. A last partial stripe counts
        as if it were followed by zeros.
    dtype : str
        A safetensors dtype; its width says which bits are of one significance.
    settings : SketchSettings
        Depth d, width w and seed. Only sketches of equal settings and widths can be compared.

    Returns
    -------
    int16 (d * w,)
        Arranged as `SketchLayout` says. Sums that int16 cannot hold are clipped: with the default
        width, six standard deviations away for a tensor of 8 GB.
    """
    layout = SketchLayout.of(dtype, settings)
    raw = np.frombuffer(data, dtype=np.uint8)
    keys, table = _hash_family(settings.depth, layout.columns, settings.seed)
    sums = np.zeros((settings.depth, LANES, layout.columns), dtype=np.int64)
    stripe_nbytes = layout.columns * WORD_NBYTES
    n_stripes, rest = divmod(raw.nbytes, stripe_nbytes)
    whole = raw[: n_stripes * stripe_nbytes]
    _accumulate(whole, 0, layout, table, keys, sums)
    if rest:
        tail = np.zeros(stripe_nbytes, dtype=np.uint8)
        tail[:rest] = raw[whole.size :]
        _accumulate(tail, n_stripes, layout, table, keys, sums)
    by_plane = sums.reshape(settings.depth, -1, layout.n_planes, layout.columns)
    flat = by_plane.transpose(2, 0, 1, 3).ravel()
    return np.clip(flat, _INT16.min, _INT16.max).astype(np.int16)


def _accumulate(
    stripes: NDArray[np.uint8],
    first_stripe: int,
    layout: SketchLayout,
    table: NDArray[np.uint64],
    keys: NDArray[np.uint64],
    sums: NDArray[np.int64],
) -> None:
    words = stripes.view("<u8")
    words.flags.writeable = False  # one compiled variant for all callers
    accumulate(words, first_stripe, 8 * layout.element_nbytes, table, keys, sums)


@lru_cache(maxsize=8)
def _hash_family(
    depth: int, columns: int, seed: int
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Row keys (d,) and sign table (d, columns): successive numbers of a splitmix64 generator."""
    steps = np.arange(1, depth * (columns + 1) + 1, dtype=np.uint64)
    numbers = mix64(np.uint64(seed) + GOLDEN * steps)
    return numbers[:depth], numbers[depth:].reshape(depth, columns)
