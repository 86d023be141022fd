"""TensorSketch: fingerprints whose distance estimates how many bits differ (TStore, §4.2)."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tstore.ids import Buffer
from tstore.settings import SketchSettings
from tstore.sketch.kernels import GOLDEN, accumulate, mix64

WORD_NBYTES = 8
BLOCK = 1024
"""Sketches per side of one matrix product: 16 MiB each at the default size."""


def build(data: Buffer, settings: SketchSettings) -> NDArray[np.int32]:
    """Sketch of the bits of one tensor (TStore, Algorithm 1).

    Parameters
    ----------
    data : Buffer
        The raw bytes; may be read-only, unaligned and of any length. A last partial word counts
        as if it were followed by zeros.
    settings : SketchSettings
        Depth d, width w and seed. Only sketches of equal settings can be compared.

    Returns
    -------
    int32 (d * w,)
        The rows one after the other.

    Raises
    ------
    OverflowError
        A bucket could leave int32: the data has more than ``w * 2**28`` bytes (256 GiB at 1024).
    """
    raw = np.frombuffer(data, dtype=np.uint8)
    # Each stripe of w words puts one word, at most 64, into a bucket.
    if raw.nbytes > settings.width << 28:
        raise OverflowError(
            f"expected at most {settings.width << 28} bytes for sketches of width "
            f"{settings.width}, found {raw.nbytes}; store this tensor without a sketch"
        )
    keys, table = _hash_family(settings.depth, settings.width, settings.seed)
    buckets = np.zeros(table.shape, dtype=np.int64)
    whole = raw.nbytes // WORD_NBYTES
    words = raw[: whole * WORD_NBYTES].view("<u8")
    words.flags.writeable = False  # one compiled variant for all callers
    accumulate(words, 0, table, keys, buckets)
    if raw.nbytes % WORD_NBYTES:
        tail = np.zeros(WORD_NBYTES, dtype=np.uint8)
        tail[: raw.nbytes % WORD_NBYTES] = raw[whole * WORD_NBYTES :]
        tail.flags.writeable = False
        accumulate(tail.view("<u8"), whole, table, keys, buckets)
    return buckets.ravel().astype(np.int32)


@lru_cache(maxsize=8)
def _hash_family(
    depth: int, width: int, seed: int
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Row keys (d,) and sign table (d, w): successive numbers of a splitmix64 generator."""
    steps = np.arange(1, depth * (width + 1) + 1, dtype=np.uint64)
    numbers = mix64(np.uint64(seed) + GOLDEN * steps)
    return numbers[:depth], numbers[depth:].reshape(depth, width)


def hamming(a: NDArray[np.int32], b: NDArray[np.int32], depth: int) -> NDArray[np.float64]:
    """Estimated number of differing bits for all pairs (TStore, equation (1)).

    The median over the rows of ``|F_a - F_b|²``, expanded to ``|F_a|² + |F_b|² - 2 F_a·F_b`` so
    that a block of pairs is one matrix product. All terms are integers far below 2**53, so the
    result is exact: the same for every block size, and 0 for equal sketches.

    Parameters
    ----------
    a : int32 (m, d * w)
    b : int32 (n, d * w)
    depth : int
        Number of rows d.

    Returns
    -------
    float64 (m, n)
        Bits. Standard error about ``sqrt(2 / (w * d))`` of the truth for unstructured changes.
    """
    bits = np.empty((len(a), len(b)), dtype=np.float64)
    for i in range(0, len(a), BLOCK):
        for j in range(0, len(b), BLOCK):
            bits[i : i + BLOCK, j : j + BLOCK] = _hamming_block(
                a[i : i + BLOCK], b[j : j + BLOCK], depth
            )
    return bits


def _hamming_block(a: NDArray[np.int32], b: NDArray[np.int32], depth: int) -> NDArray[np.float64]:
    """Equation (1) for one block; the rows of the sketch become the leading axis."""
    rows_a = a.reshape(len(a), depth, -1).transpose(1, 0, 2).astype(np.float64)
    rows_b = b.reshape(len(b), depth, -1).transpose(1, 0, 2).astype(np.float64)
    norms_a = np.einsum("rik,rik->ri", rows_a, rows_a)
    norms_b = np.einsum("rik,rik->ri", rows_b, rows_b)
    squared = rows_a @ rows_b.transpose(0, 2, 1)
    squared *= -2.0
    squared += norms_a[:, :, None]
    squared += norms_b[:, None, :]
    np.maximum(squared, 0.0, out=squared)
    # The median of two is their mean, which needs no partial sort.
    middle: NDArray[np.float64] = squared.mean(axis=0) if depth <= 2 else np.median(squared, axis=0)
    return middle


def distance(
    a: NDArray[np.int32], b: NDArray[np.int32], depth: int, nbytes: int
) -> NDArray[np.float64]:
    """Estimated share of differing bits p for all pairs, clipped to [0, 1] (TStore, §4.2).

    Parameters
    ----------
    a : int32 (m, d * w)
    b : int32 (n, d * w)
    depth : int
        Number of rows d.
    nbytes : int
        Size of each tensor, at least 1.

    Returns
    -------
    float64 (m, n)
    """
    if nbytes < 1:
        raise ValueError(f"expected tensors of at least 1 byte, found nbytes={nbytes}")
    return np.minimum(hamming(a, b, depth) / (8 * nbytes), 1.0)
