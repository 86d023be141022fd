"""Pairs to measure are chosen from a bounded sample: the same ones as long as all of them fit."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from tstore.predict import pairs
from tstore.predict.pairs import MIN_MEASURED_NBYTES, Pair, choose_pairs
from tstore.predict.spread import cover_range
from tstore.settings import SketchSettings
from tstore.sketch.distances import distance, group_distances
from tstore.sketch.groups import SketchGroup, evenly
from tstore.sketch.layout import SketchLayout

SKETCH = SketchSettings(width=32)
LAYOUT = SketchLayout.of("BF16", SKETCH)
LARGE, SMALL = MIN_MEASURED_NBYTES, MIN_MEASURED_NBYTES - 2
NOTHING = np.empty(0)
Groups = list[tuple[SketchGroup, SketchGroup | None]]


def group(number: int, n: int, nbytes: int = LARGE, seed: int = 0) -> SketchGroup:
    """Tensors at all kinds of distances from one another."""
    rng = np.random.default_rng([number, seed])
    size = SKETCH.depth * SKETCH.width
    steps = rng.normal(0, 1, (n, size)) * np.exp(rng.uniform(0, 5, (n, 1)))
    sketches = np.rint(rng.normal(0, 20, size) + steps).astype(np.int16)
    ids = tuple(f"{number}.{seed}.{i}" for i in range(n))
    return SketchGroup("BF16", (number, 2), nbytes, ids, sketches, np.full(n, 0.66))


def plain(groups: Groups, known: NDArray[np.float64], count: int) -> list[tuple[str, str]]:
    """Target and base of the chosen pairs, from a list of all."""
    found: list[tuple[str, str, float]] = []
    for new, stored in groups:
        held = [part.take(evenly(len(part.ids), 64)) for part in (stored, new) if part is not None]
        ids = [name for part in held for name in part.ids]
        sketches = np.concatenate([part.sketches for part in held])
        apart = distance(group_distances(sketches, sketches, LAYOUT, new.nbytes), LAYOUT)
        for base in range(len(ids)):
            for target in range(base + 1, len(ids)):
                if ids[target] in held[-1].ids:
                    found.append((ids[target], ids[base], float(apart[base, target])))
    chosen = cover_range(np.array([p for _, _, p in found]), known, count)
    return [found[i][:2] for i in chosen]


def ends(found: list[Pair]) -> list[tuple[str, str]]:
    return [(pair.target_id, pair.base_id) for pair in found]


GROUPS: Groups = [
    (group(1, 9), None),
    (group(2, 1), None),
    (group(3, 4), group(3, 70, seed=1)),
    (group(4, 80), group(4, 1, seed=1)),
]


@pytest.mark.parametrize("known", [NOTHING, np.linspace(0, 0.2, 50)])
def test_pairs_are_those_of_the_whole_list(known: NDArray[np.float64]) -> None:
    found = ends(choose_pairs(iter(GROUPS), SKETCH, known, 40))
    assert len(found) > 10
    assert found == plain(GROUPS, known, 40)


def test_a_thinned_sample_still_covers_the_range(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "MAX_CANDIDATES", 300)
    kept: list[int] = []
    add = pairs._Sample.add

    def counted(sample: pairs._Sample, found: pairs._Candidates) -> None:
        add(sample, found)
        kept.append(sample.distances().size)

    monkeypatch.setattr(pairs._Sample, "add", counted)
    groups: Groups = [(group(number, 20), None) for number in range(1, 30)]
    found = choose_pairs(groups, SKETCH, NOTHING, 24)
    assert max(kept) <= 300
    assert found == choose_pairs(groups, SKETCH, NOTHING, 24)
    assert len(set(ends(found))) == 24
    everything = np.sort([pair.distance for pair in choose_pairs(groups, SKETCH, NOTHING, 10**6)])
    chosen = np.sort([pair.distance for pair in found])
    widest = np.diff(chosen).max()
    assert widest < 3 * np.ptp(everything) / 24
    by_id = {name: new for new, _ in groups for name in new.ids}
    for pair in found[::5]:
        one, two = (by_id[name] for name in (pair.target_id, pair.base_id))
        assert one is two
        rows = [one.ids.index(name) for name in (pair.target_id, pair.base_id)]
        p = group_distances(one.sketches[rows], one.sketches[rows], LAYOUT, pair.nbytes)
        assert pair.group_distance == tuple(p[:, 0, 1].tolist())
        assert pair.shape == one.shape


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_small_tensors_are_measured_only_if_there_are_no_others(order: tuple[int, int]) -> None:
    both: Groups = [(group(1, 5, SMALL), None), (group(2, 5), None)]
    found = choose_pairs([both[i] for i in order], SKETCH, NOTHING, 99)
    assert {pair.nbytes for pair in found} == {LARGE}
    assert len(found) == 10
    lone: Groups = [both[0], (group(3, 1), None)]
    assert {pair.nbytes for pair in choose_pairs(lone, SKETCH, NOTHING, 99)} == {SMALL}


def test_even_spacing() -> None:
    assert evenly(5, 9).tolist() == [0, 1, 2, 3, 4]
    assert evenly(101, 3).tolist() == [0, 50, 100]
    assert evenly(1, 64).tolist() == [0]
