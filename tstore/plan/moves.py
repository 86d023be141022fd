"""What to change in a stored plan: changes that belong together, and which of them pay.

A tensor *moves* when the new plan gives it another base, or none. It may only move together with
what its old and its new place rest on: a base that becomes a delta frees its deltas first, and a
delta becomes a base before it gets any. Such sets of moves are independent of one another, so each
is judged by itself: what it saves, and what it costs to rewrite.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Ints = NDArray[np.int64]

MOVES = pa.schema(
    [
        pa.field("tensor_id", pa.string(), nullable=False),
        pa.field("base_id", pa.string()),
        pa.field("old_base_id", pa.string()),
        pa.field("old_nbytes", pa.int64(), nullable=False),
        pa.field("new_nbytes", pa.int64(), nullable=False),
    ]
)
"""Stored bytes of each tensor as it is, and as predicted. A base that nothing but its deltas needs
any more is a move to 0 bytes: it goes when they do."""


@dataclass(frozen=True)
class Choice:
    """Moves by set, and which sets are made.

    Attributes
    ----------
    sets : int64 (n,)
        Number of the set of each move.
    chosen : bool (n,)
        Whether its set is made.
    n_left : int
        Sets that would pay but have no room in the budget.
    """

    sets: Ints
    chosen: NDArray[np.bool_]
    n_left: int


def choose_moves(moves: pa.Table, min_gain: float, max_rewrite_nbytes: int | None) -> Choice:
    """Choose the sets of moves to make, those first that save the most per byte written.

    Parameters
    ----------
    moves : pyarrow.Table
        Rows `MOVES`, all of a new plan.
    min_gain : float
        A set must save at least this share of what its tensors take now.
    max_rewrite_nbytes : int or None
        Bytes to write at most, as predicted.
    """
    sets = move_sets(moves)
    old, new = (moves[name].to_numpy().astype(np.float64) for name in ("old_nbytes", "new_nbytes"))
    count = int(sets.max()) + 1 if sets.size else 0
    before, after = (np.bincount(sets, nbytes, count) for nbytes in (old, new))
    gain = before - after
    pays = (gain > 0) & (gain >= min_gain * before)
    order = np.argsort(-gain / np.maximum(after, 1), kind="stable")
    order = order[pays[order]]
    room = np.inf if max_rewrite_nbytes is None else float(max_rewrite_nbytes)
    made = np.zeros(count, dtype=np.bool_)
    for number in order.tolist():
        if after[number] <= room:
            made[number] = True
            room -= after[number]
    return Choice(sets, made[sets], int(pays.sum() - made.sum()))


def move_sets(moves: pa.Table) -> Ints:
    """Number of the set of each move, from 0, in the order of their first moves; int64 (n,)."""
    names = moves["tensor_id"].to_pylist()
    place = {name: i for i, name in enumerate(names)}
    parent = list(range(len(names)))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    for column in ("base_id", "old_base_id"):
        for i, base in enumerate(moves[column].to_pylist()):
            if (j := place.get(base)) is not None:
                low, high = sorted((root(i), root(j)))
                parent[high] = low
    roots = np.array([root(i) for i in range(len(names))], dtype=np.int64)
    return np.unique(roots, return_inverse=True)[1].astype(np.int64)
