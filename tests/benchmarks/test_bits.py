"""Exact bit distances: equal to counting bits one by one, whatever the size and place."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.planning.bits import BitDistances, differing_bits


def plain(a, b):
    return sum(int(x ^ y).bit_count() for x, y in zip(a.tolist(), b.tolist(), strict=True))


@given(a=st.binary(max_size=70), seed=st.integers(0, 99), start=st.integers(0, 8))
def test_bits_are_counted_one_by_one(a, seed, start):
    one = np.frombuffer(a, np.uint8)[start:]
    other = np.random.default_rng(seed).integers(0, 256, one.size, dtype=np.uint8)
    assert differing_bits(one, other) == plain(one, other)
    assert differing_bits(one, one) == 0
    assert differing_bits(one, ~one) == 8 * one.size


def test_distances_of_a_hub(hub, bench, cache):
    (group,) = hub.groups
    data = [np.array(hub.tensors[name].read()) for name in group.ids[:6]]
    expected = [[plain(a, b) for b in data] for a in data]
    assert bench.distances.of(group)[:6, :6].tolist() == expected
    assert bench.distances.between(group.ids[1], group.ids[4]) == expected[1][4]
    again = BitDistances(hub, cache)  # from the disk
    assert again.of(group).tolist() == bench.distances.of(group).tolist()


def test_tensors_in_no_group_have_no_distance(hub, bench):
    norm = hub.contents["lab/base"]["norm"]
    assert bench.distances.between(norm, hub.groups[0].ids[0]) is None


def test_distances_follow_the_order_of_the_group_asked_for(hub, bench):
    (group,) = hub.groups
    (backwards,) = hub.groups_of(reversed(group.ids))
    assert (bench.distances.of(backwards) == bench.distances.of(group)[::-1, ::-1]).all()
