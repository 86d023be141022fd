"""Which shapes may serve one another: embeddings whose vocabulary grew, or was cut.

The delta of such a tensor is taken against a base cut or padded with zeros to its size (see
`tstore.catalog.blobs.resized`). Rows before the end stay where they were, so the sketches tell
the distance as they do within a group.
"""

from __future__ import annotations

from collections.abc import Iterable

from tstore.sketch.groups import GroupKey

MAX_GROWTH = 1.25
"""Shapes whose row counts differ more are not compared: too little would be shared."""


def kin_shapes(keys: Iterable[GroupKey]) -> list[list[GroupKey]]:
    """Sets of shapes with the same dtype and rows, but somewhat more or fewer of them.

    Parameters
    ----------
    keys : iterable of (dtype, shape)

    Returns
    -------
    list of list of (dtype, shape)
        Each key is in one set at most; within a set no shape has more than `MAX_GROWTH` times the
        rows of another. Shapes without kin are left out.
    """
    rows: dict[tuple[str, tuple[int, ...]], set[int]] = {}
    for dtype, shape in keys:
        if len(shape) > 1:
            rows.setdefault((dtype, shape[1:]), set()).add(shape[0])
    sets = []
    for (dtype, row), counts in sorted(rows.items()):
        ordered = sorted(counts)
        while ordered:
            near = [count for count in ordered if count <= MAX_GROWTH * ordered[0]]
            if len(near) > 1:
                sets.append([(dtype, (count, *row)) for count in near])
            ordered = ordered[len(near) :]
    return sets
