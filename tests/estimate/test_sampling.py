"""Draws and what is inferred from them, on clusters whose truth is known."""

import numpy as np
import pytest

from tstore.estimate.clusters import BLOCK_NBYTES, Cluster, Member
from tstore.estimate.sampling import draw_sample, half_width, mean_and_variance
from tstore.hub.reader import SourceFile

SMALL = 16 * 1024


def cluster(nbytes, members=3, dtype="BF16"):
    sources = [SourceFile(f"/{dtype}/{nbytes}/{i}", nbytes, "") for i in range(members)]
    rows = nbytes // 512
    return Cluster(dtype, (256,), tuple(Member(s, 0, nbytes, rows, 1) for s in sources))


def frame(rng, count=120):
    sizes = rng.choice([1, 2, 5, 18], count) * BLOCK_NBYTES
    return [cluster(int(size), int(rng.integers(1, 6))) for size in sizes]


def ratios(rng, clusters):
    """A ratio for each block: clusters differ, and so do their blocks, a little."""
    return {
        (id(c), block): level + rng.normal(0, 0.01)
        for c, level in zip(clusters, rng.uniform(0.1, 0.7, len(clusters)), strict=True)
        for block in range(c.n_blocks)
    }


def test_estimates_are_unbiased_and_intervals_hold_the_truth():
    rng = np.random.default_rng(0)
    clusters = frame(rng)
    truth = ratios(rng, clusters)
    total = sum(c.nbytes for c in clusters)
    mean = sum(truth[id(c), b] * c.nbytes / c.n_blocks for c in clusters for b in range(c.n_blocks))
    mean /= total
    found, held = [], 0
    for seed in range(300):
        (stratum,) = draw_sample(clusters, 0.2 * total, SMALL, seed)
        estimate, variance = mean_and_variance(
            stratum, np.array([truth[draw.key] for draw in stratum.draws])
        )
        found.append(estimate)
        held += abs(estimate - mean) <= half_width([variance], [len(stratum.draws)])
    assert np.mean(found) == pytest.approx(mean, abs=3 * np.std(found) / np.sqrt(300))
    assert held / 300 >= 0.93


def test_what_is_read_is_what_was_asked_for():
    clusters = frame(np.random.default_rng(1), 400)
    total = sum(c.nbytes for c in clusters)
    (stratum,) = draw_sample(clusters, 0.1 * total, SMALL, 0)
    read = sum({draw.key: draw.cluster.block_nbytes for draw in stratum.draws}.values())
    assert read == pytest.approx(0.1 * total, rel=0.15)
    assert stratum.share == pytest.approx(read / total)
    assert sum(draw.weight for draw in stratum.draws) == pytest.approx(1)


def test_small_strata_are_looked_at_as_a_whole_and_have_no_error():
    large = frame(np.random.default_rng(2), 400)
    small = [cluster(1024, 5) for _ in range(20)]
    other = [cluster(4 * BLOCK_NBYTES, 2, "F32")]
    total = sum(c.nbytes for c in large)
    strata = draw_sample([*large, *small, *other], 0.1 * total, SMALL, 0)
    assert [(s.dtype, s.share == 1.0) for s in strata] == [
        ("BF16", False),
        ("BF16", True),
        ("F32", True),
    ]
    assert len(strata[1].draws) == 20
    assert strata[1].n_members == 100
    values = np.linspace(0, 1, 20)
    assert mean_and_variance(strata[1], values) == (pytest.approx(0.5), 0.0)


def test_the_same_seed_draws_the_same():
    clusters = frame(np.random.default_rng(3), 400)
    nbytes = 0.05 * sum(c.nbytes for c in clusters)

    def drawn(seed):
        (stratum,) = draw_sample(clusters, nbytes, SMALL, seed)
        return [draw.key for draw in stratum.draws]

    assert drawn(1) == drawn(1) != drawn(2)


@pytest.mark.parametrize(
    ("draws", "student"), [(6, 2.571), (11, 2.228), (31, 2.042), (1001, 1.962)]
)
def test_half_width_of_one_stratum_is_students(draws, student):
    assert half_width([4.0], [draws]) == pytest.approx(2 * student, rel=0.01)
    assert half_width([0.0], [draws]) == 0.0
