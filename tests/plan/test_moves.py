"""Moves that belong together, and which pay."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tstore.plan.moves import MOVES, choose_moves, move_sets


def table(*rows):
    return pa.Table.from_pylist(
        [dict(zip(MOVES.names, (*row, 10, 5)[:5], strict=True)) for row in rows], MOVES
    )


def test_a_base_that_moves_takes_its_deltas_old_and_new_along():
    moves = table(
        ("base", "centre", None),  # becomes a delta
        ("other", None, "fixed"),
        ("delta", "centre", "base"),
        ("centre", None, "base"),  # becomes a base
        ("late", "fixed", "base"),
        ("alone", "fixed", None),  # a base that stays joins nothing
        ("lone", "fixed", None),
    )
    assert move_sets(moves).tolist() == [0, 1, 0, 0, 0, 2, 3]


ids = st.sampled_from([*"abcdefgh", None])


@given(rows=st.lists(st.tuples(ids, ids), max_size=8))
def test_sets_are_the_connected_ones(rows):
    moves = table(*(("abcdefgh"[i], base, old) for i, (base, old) in enumerate(rows)))
    sets = move_sets(moves).tolist()
    reach = {i: {i} for i in range(len(rows))}
    for _ in rows:
        for i, pair in enumerate(rows):
            for name in pair:
                j = "abcdefgh".find(name) if name else -1
                if 0 <= j < len(rows):
                    joined = reach[i] | reach[j]
                    for k in joined:
                        reach[k] = reach[k] | joined
    for i in range(len(rows)):
        for j in range(len(rows)):
            assert (sets[i] == sets[j]) == (j in reach[i])


def test_sets_that_save_the_most_per_byte_come_first():
    moves = table(
        ("a", None, None, 100, 90),
        ("b", None, None, 100, 10),
        ("c", None, None, 100, 50),
        ("worse", None, None, 10, 20),
        ("little", None, None, 1000, 999),
    )
    choice = choose_moves(moves, 0.02, 70)
    assert choice.chosen.tolist() == [False, True, True, False, False]
    assert choice.n_left == 1, "a: it pays, but there is no room"
    assert choose_moves(moves, 0.02, None).chosen.tolist() == [True, True, True, False, False]
    assert choose_moves(moves, 0.0, None).chosen.tolist() == [True, True, True, False, True]


@pytest.mark.parametrize(("freed", "made"), [(200, True), (20, False)])
def test_a_base_that_only_its_deltas_need_counts_as_saved(freed, made):
    moves = table(("delta", None, "dead", 10, 60), ("dead", None, None, freed, 0))
    assert choose_moves(moves, 0.02, None).chosen.tolist() == [made, made]


def test_no_moves():
    choice = choose_moves(MOVES.empty_table(), 0.02, None)
    assert choice.chosen.size == 0
    assert choice.n_left == 0
