"""How many bits differ between tensors, from their sketches alone (TStore, equation (1))."""

from __future__ import annotations

from contextlib import AbstractContextManager

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from tstore.sketch.kernels import squared_differences
from tstore.sketch.layout import SketchLayout

BLOCK = 1024
"""Sketches per side of one matrix product."""
_EXACT_FLOAT32 = 2.0**24
"""Integers up to here, and their sums, are exact in float32: tensors of some 16 MB."""


def one_blas_thread() -> AbstractContextManager[object]:
    """Context for many small comparisons: threads that wait for a busy core cost ten times more."""
    context: AbstractContextManager[object] = threadpool_limits(limits=1, user_api="blas")
    return context


def group_hamming(
    a: NDArray[np.int16], b: NDArray[np.int16], layout: SketchLayout
) -> NDArray[np.float64]:
    """Estimated number of differing bits of each plane group, for all pairs.

    The median over the rows of ``|F_a - F_b|²``, expanded to ``|F_a|² + |F_b|² - 2 F_a·F_b`` so
    that a block of pairs is one matrix product. All terms are integers that the chosen float type
    holds, so the result is exact: the same for every block size, and 0 for equal sketches.

    Parameters
    ----------
    a : int16 (m, d * w)
    b : int16 (n, d * w)
    layout : SketchLayout

    Returns
    -------
    float64 (groups, m, n)
        Bits. Standard error of a group about ``sqrt(2 / numbers of the group)`` of the truth for
        unstructured changes.
    """
    bits = np.empty((layout.n_groups, len(a), len(b)), dtype=np.float64)
    for i in range(0, len(a), BLOCK):
        for j in range(0, len(b), BLOCK):
            _hamming_block(a[i : i + BLOCK], b[j : j + BLOCK], layout, bits, i, j)
    return bits


def _hamming_block(
    a: NDArray[np.int16],
    b: NDArray[np.int16],
    layout: SketchLayout,
    bits: NDArray[np.float64],
    i: int,
    j: int,
) -> None:
    """Equation (1) for one block, group by group."""
    shape = (layout.n_planes, layout.depth, -1)
    first = 0
    for group, planes in enumerate(layout.group_planes):
        part = slice(first, first + planes)
        rows_a, rows_b = (_rows(x.reshape(len(x), *shape)[:, part]) for x in (a, b))
        norms_a, norms_b = (np.einsum("rik,rik->ri", x, x, dtype=float) for x in (rows_a, rows_b))
        squared = _products(rows_a, rows_b, norms_a, norms_b)
        squared *= -2.0
        squared += norms_a[:, :, None]
        squared += norms_b[:, None, :]
        bits[group, i : i + len(a), j : j + len(b)] = _middle(squared, layout)
        first += planes


def _rows(planes: NDArray[np.int16]) -> NDArray[np.float32]:
    """(n, planes, d, buckets) with the rows of the sketch as the leading axis: (d, n, numbers)."""
    n, _, depth, _ = planes.shape
    rows = planes.transpose(2, 0, 1, 3).reshape(depth, n, -1)
    return rows.astype(np.float32)


def _products(
    rows_a: NDArray[np.float32],
    rows_b: NDArray[np.float32],
    norms_a: NDArray[np.float64],
    norms_b: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Dot products (d, m, n), exact: no sum on the way exceeds the product of the norms."""
    largest = norms_a.max(initial=0.0) * norms_b.max(initial=0.0)  # squared
    if largest > _EXACT_FLOAT32**2:
        return rows_a.astype(np.float64) @ rows_b.astype(np.float64).transpose(0, 2, 1)
    product: NDArray[np.float32] = rows_a @ rows_b.transpose(0, 2, 1)
    return product.astype(np.float64)


def group_distances(
    a: NDArray[np.int16],
    b: NDArray[np.int16],
    layout: SketchLayout,
    nbytes: int | NDArray[np.int64],
) -> NDArray[np.float64]:
    """Estimated share of differing bits p of each plane group, clipped to [0, 1].

    Parameters
    ----------
    a : int16 (m, d * w)
    b : int16 (n, d * w)
    layout : SketchLayout
    nbytes : int or int64 (m,)
        Size of each tensor of `a`, at least 1.

    Returns
    -------
    float64 (groups, m, n)
    """
    sizes = np.asarray(nbytes)
    if sizes.min(initial=1) < 1:
        raise ValueError(f"expected tensors of at least 1 byte, found nbytes={sizes.min()}")
    return _shares(group_hamming(a, b, layout), layout, sizes.reshape(-1, 1))


def pair_distances(
    sketches: NDArray[np.int16],
    a: NDArray[np.int64],
    b: NDArray[np.int64],
    layout: SketchLayout,
    nbytes: NDArray[np.int64],
) -> NDArray[np.float64]:
    """`group_distances` of single pairs: the same bits, without all the others.

    Parameters
    ----------
    sketches : int16 (n, d * w)
    a, b : int64 (m,)
        Rows of `sketches` to compare.
    layout : SketchLayout
    nbytes : int64 (m,)
        Size of each tensor of `a`.

    Returns
    -------
    float64 (groups, m)
    """
    planes = sketches.reshape(len(sketches), layout.n_planes, layout.depth, -1)
    ends = np.cumsum(layout.group_planes)
    squared = np.empty((a.size, ends.size, layout.depth), dtype=np.int64)
    squared_differences(planes, a, b, ends, squared)
    return _shares(_middle(squared.transpose(2, 1, 0).astype(np.float64), layout), layout, nbytes)


def _middle(rows: NDArray[np.float64], layout: SketchLayout) -> NDArray[np.float64]:
    """Median over the leading axis; that of two is their mean, which needs no partial sort."""
    middle: NDArray[np.float64] = (
        rows.mean(axis=0) if layout.depth <= 2 else np.median(rows, axis=0)
    )
    return middle


def _shares(
    bits: NDArray[np.float64], layout: SketchLayout, nbytes: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Differing bits (groups, ...) as shares, clipped to 1; `nbytes` fits the other axes."""
    totals = 8.0 * np.multiply.outer(np.array(layout.shares), nbytes)
    shares: NDArray[np.float64] = np.minimum(bits / totals, 1.0)
    return shares


def distance(groups: NDArray[np.float64], layout: SketchLayout) -> NDArray[np.float64]:
    """Share of differing bits p of all planes together (TStore, §4.2).

    Parameters
    ----------
    groups : float64 (groups, ...)
        From `group_distances`.
    layout : SketchLayout

    Returns
    -------
    float64 (...)
    """
    return np.tensordot(np.array(layout.shares), groups, axes=1)
