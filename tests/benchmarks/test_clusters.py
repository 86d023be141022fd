"""Clusters of phase I partition the groups; the optimum is one."""

import numpy as np
import pytest

from benchmarks.planning import clusters
from benchmarks.planning.clusters import Cluster
from tstore.plan.flexsplit import arrive, split
from tstore.plan.problem import Assignment


def test_clusters_partition_the_group(bench):
    found = clusters.find_clusters(bench)
    assert sum(cluster.size for cluster in found) == 24
    problem = bench.problem(bench.hub.groups[0], bench.codec)
    first = arrive(problem)
    for after, plan in ((False, first), (True, split(problem, first))):
        total = sum(c.size * (1 - (c.after if after else c.before)) for c in found)
        assert total == pytest.approx(plan.ratio.sum())


def test_a_cluster_is_a_base_with_its_deltas():
    first = Assignment(np.array([-1, 0, -1, 2, 2]), np.array([0.7, 0.1, 0.7, 0.5, 0.6]))
    second = Assignment(np.array([-1, 0, 4, 4, -1]), np.array([0.7, 0.1, 0.3, 0.3, 0.7]))
    found = clusters._clusters("g", first, second)
    assert [(c.size, c.split) for c in found] == [(2, False), (3, True)]
    assert found[0].before == found[0].after == pytest.approx(1 - 0.8 / 2)
    assert (found[1].before, found[1].after) == pytest.approx((1 - 1.8 / 3, 1 - 1.3 / 3))


def test_splits_are_summed_up():
    found = [
        Cluster("g", 1, 0.3, 0.3, False),
        Cluster("g", 10, 0.3, 0.5, True),
        Cluster("g", 20, 0.4, 0.4, True),
    ]
    left, changed = clusters.splits_table(found).rows
    assert left[1:4] == (1, 1 / 3, 1)
    assert changed[1:5] == (2, 2 / 3, 15, 20)
    assert changed[5:] == pytest.approx((0.35, 0.45, 0.5))
    assert len(clusters.clusters_table(found).rows) == 3


def test_no_plan_beats_the_optimum(bench):
    table = clusters.optimum_table(bench)
    group, total = table.rows
    assert group[2:] == total[2:]  # there is one group
    first_base, by_model, phase_1, phases, replanned = group[3:]
    assert min(group[3:]) >= -1e-6
    assert replanned < 0.01
    assert phases <= phase_1 + 1e-9
    assert first_base > by_model  # a tensor per layer is needed
