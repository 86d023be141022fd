"""Growth, totals and families add up to the bytes of the plan."""

import numpy as np
import pytest

from benchmarks.planning import reduction
from benchmarks.planning.bench import arriving
from benchmarks.planning.reduction import FLEXSPLIT, REPLANNED


@pytest.fixture(scope="module")
def lines(bench):
    return reduction.lines(bench)


def test_every_planner_meets_every_codec(lines):
    found = [(line.planner, line.codec) for line in lines]
    assert len(found) == len(set(found)) == 2 + 5 * 3


def test_a_store_ends_with_the_bytes_of_its_plan(lines, bench):
    for line in lines:
        assert line.growth[-1] == sum(line.stored.values()), line.planner
        assert line.stored == bench.stored(line.plan, line.codec)
        assert set(line.plan) == set(bench.hub.arrivals)


def test_alone_is_the_sum_of_the_models_so_far(lines, bench):
    alone = next(line for line in lines if line.planner == "alone")
    sizes = bench.sizes.alone(bench.hub.arrivals)
    per_model = [sum(sizes[i] for i in ids) for ids in arriving(bench.hub).values()]
    assert list(alone.growth) == np.cumsum(per_model).tolist()


def test_replanning_sees_only_what_has_arrived(lines, bench):
    hub = bench.hub
    for line in (line for line in lines if line.planner == REPLANNED):
        first = hub.only(["lab/base"])
        assert line.growth[0] == sum(bench.sizes.alone(first.arrivals).values())
        assert all(a <= b for a, b in zip(line.growth, line.growth[1:], strict=False))


def test_content_beats_names_where_tensors_were_renamed(lines):
    totals = {(line.planner, line.codec): line.growth[-1] for line in lines}
    for codec in ("tensorx", "fmpp", "ulprow"):
        assert totals[FLEXSPLIT, codec] < totals["zipllm", codec] < totals["alone", "zipnn"]


def test_tables_agree_with_the_lines(lines, bench):
    hub = bench.hub
    raw = sum(map(hub.nbytes, hub.contents))
    totals = reduction.totals_table(hub, lines)
    growth = reduction.growth_table(hub, lines)
    families = reduction.families_table(hub, lines)
    for i, line in enumerate(lines):
        expected = 1 - sum(line.stored.values()) / raw
        assert totals.rows[i][2] == totals.rows[i][3] == pytest.approx(expected)  # all is BF16
        assert growth.rows[-1][3 + i] == pytest.approx(expected)
    together = [row for row in families.rows if row[2:4] == (FLEXSPLIT, "fmpp")]
    assert [(row[0], row[1]) for row in together] == [("lab", 5), ("other", 1)]
    (whole,) = (row[2] for row in totals.rows if row[:2] == (FLEXSPLIT, "fmpp"))
    # All models are of one size.
    assert sum(row[4] * row[1] for row in together) / 6 == pytest.approx(whole)


def test_shares_of_tensors_sum_to_one(lines, bench):
    table = reduction.tensors_table(bench.hub, lines)
    assert [sum(row[2:]) for row in table.rows] == pytest.approx([1.0] * len(lines))
