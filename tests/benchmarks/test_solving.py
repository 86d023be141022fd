"""Simulated groups are like real ones; solvers are timed on the same problems."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.planning import solving
from benchmarks.planning.bits import differing_bits
from benchmarks.planning.solving import checkpoints, fine_tunes, solving_table, stored


def nearest_bf16(value):
    """The bf16 next to a float32, of two equally near the one that ends in a zero bit."""
    pattern = int(np.float32(value).view(np.uint32)) >> 16
    near = [p for p in (pattern, pattern + 1) if p < 0x10000]
    distances = [abs(float(np.uint32(p << 16).view(np.float32)) - float(value)) for p in near]
    best = [p for p, d in zip(near, distances, strict=True) if d == min(distances)]
    return best[0] if len(best) == 1 else next(p for p in best if p % 2 == 0)


@given(value=st.floats(-(2.0**100), 2.0**100, width=32))
def test_bf16_rounds_to_nearest_even(value):
    rounded = stored(np.array([value], np.float32), "BF16").view(np.uint16)
    assert rounded.tolist() == [nearest_bf16(value)]


def test_f32_is_kept():
    values = np.array([0.1, -3.0], np.float32)
    assert stored(values, "F32").view(np.float32).tolist() == values.tolist()


def shares(data, pairs):
    return [differing_bits(data[i], data[j]) / (8 * data[i].size) for i, j in pairs]


def test_fine_tunes_extend_the_group(hub, bench, monkeypatch):
    monkeypatch.setattr(solving, "SIZES", (40,))
    (group,) = hub.groups
    data = fine_tunes(bench, group)
    real = {hub.tensors[name].read().tobytes() for name in group.ids}
    simulated = [one for one in data if one.tobytes() not in real]
    assert len(data) == 40
    assert len(simulated) == 40 - 24
    for one in simulated:  # near one tensor, as far as strangers from most
        found = sorted(differing_bits(one, other) / (8 * one.size) for other in data)[1:]
        assert 0.005 < found[0] < 0.25
        assert found[-1] > 0.3


def test_checkpoints_move_away_step_by_step(hub, bench, monkeypatch):
    monkeypatch.setattr(solving, "SIZES", (30,))
    data = checkpoints(bench, hub.groups[0])
    assert (data[0] == hub.tensors[hub.groups[0].ids[0]].read()).all()
    steps = shares(data, [(i, i + 1) for i in range(29)])
    assert 0.005 < min(steps) < max(steps) < 0.025
    away = shares(data, [(0, i) for i in (1, 3, 9, 29)])
    assert away == sorted(away)
    assert away[-1] > 2 * away[0]


def test_solvers_meet_the_same_problems(bench, monkeypatch):
    monkeypatch.setattr(solving, "SIZES", (20, 40))
    rows = solving_table(bench).rows
    assert [row[:3] for row in rows] == [
        (kind, n, name)
        for kind in ("fine-tunes", "checkpoints")
        for n in (20, 40)
        for name in solving.SOLVERS
    ]
    limits = {"phase I": 1.0, "flexsplit": 0.01, "primal-dual": 2.0, solving.OPTIMUM: 0.0}
    for *_, name, seconds, pricing, reduction, over in rows:
        assert seconds > 0
        assert pricing > 0
        assert 0.2 < reduction < 1
        assert -1e-6 <= over <= limits[name], name
