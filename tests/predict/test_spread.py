"""Measured pairs cover the range of distances, not their density."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tstore.predict.spread import BINS, cover_range, spread_over_range

distances = st.lists(st.floats(0, 1), max_size=80).map(lambda p: np.array(p, np.float64))


@given(p=distances, count=st.integers(1, 30))
def test_picks_min_of_n_and_count_unique_sorted(p, count):
    chosen = spread_over_range(p, count)
    assert chosen.dtype == np.int64
    assert len(chosen) == min(len(p), count)
    assert chosen.tolist() == sorted(set(chosen.tolist()))
    assert set(chosen.tolist()) <= set(range(len(p)))


def test_few_related_pairs_are_not_drowned_by_unrelated_ones():
    rng = np.random.default_rng(0)
    p = np.concatenate([np.linspace(0, 0.3, 30), rng.uniform(0.34, 0.36, 5000)])
    chosen = p[spread_over_range(p, 36)]
    assert (chosen < 0.3).sum() >= 27
    assert (chosen > 0.34).sum() >= 2


def test_every_bin_with_a_pair_gives_one_before_any_gives_two():
    p = np.linspace(0, 1, 1001)
    chosen = p[spread_over_range(p, 10)]
    assert np.allclose(chosen, np.arange(10) / 10 + 0.05, atol=0.001)


def test_empty_bins_are_made_up_for():
    p = np.array([0.0, 0.01, 0.02, 0.99, 1.0])
    assert spread_over_range(p, 4).tolist() == [1, 2, 3, 4]


def test_equal_distances():
    assert len(spread_over_range(np.full(50, 0.25), 8)) == 8


def test_nothing_known_means_spread_over_the_whole_range():
    p = np.linspace(0, 0.4, 500)
    assert cover_range(p, np.empty(0), 30).tolist() == spread_over_range(p, 30).tolist()


def test_only_parts_of_the_range_that_are_open_are_measured():
    p = np.linspace(0, 0.48, 4801)
    known = p[p > 0.1]
    chosen = p[cover_range(p, known, 96)]
    assert chosen.max() <= 0.12
    assert len(chosen) == 4 * len(set((chosen // 0.02).tolist()))
    assert cover_range(p, p, 96).size == 0


@given(p=distances, known=distances, count=st.integers(1, 100))
def test_cover_picks_valid_unique_pairs(p, known, count):
    chosen = cover_range(p, known, count)
    assert chosen.tolist() == sorted(set(chosen.tolist()))
    assert set(chosen.tolist()) <= set(range(len(p)))
    assert len(chosen) <= max(count, -(-count // BINS) * BINS)
