"""Traps change what they say and nothing else; planning by content does not mind."""

import pytest

from benchmarks.planning.hub import Hub
from benchmarks.planning.traps import MERGES, PLAIN, traps, traps_table

from .conftest import SETTINGS


def test_traps(hub):
    found = traps(hub)
    plain, judged = found[PLAIN]
    family = ["lab/base", "org/tuned", "org/renamed", "org/run/step-1"]
    assert list(plain.contents) == judged == family
    assert list(found["an unrelated model last"][0].contents) == [*family, "other/stranger"]
    assert list(found["an unrelated model first"][0].contents) == ["other/stranger", *family]
    merges, judged = found[MERGES]
    assert list(merges.contents) == [*family, "zoo/merge"]
    assert judged == ["zoo/merge"]


def test_renaming_changes_names_only(hub):
    plain, renamed = traps(hub)[PLAIN][0], traps(hub)["all tensors renamed"][0]
    for model, names in plain.contents.items():
        assert list(renamed.contents[model].values()) == list(names.values())
    everything = [name for names in renamed.contents.values() for name in names]
    assert len(set(everything)) == len(everything)


def test_reversing_changes_the_order_only(hub):
    plain, backwards = traps(hub)[PLAIN][0], traps(hub)["tensors in reverse order"][0]
    assert backwards.contents == plain.contents  # as mappings
    for model, names in plain.contents.items():
        assert list(backwards.contents[model]) == list(names)[::-1]


def test_content_does_not_mind(bench):
    rows = {row[:2]: row[4:] for row in traps_table(bench).rows}
    for trap in traps(bench.hub):
        reduction, kept = rows[trap, "flexsplit"]
        assert reduction > 0.4
        assert trap == MERGES or kept == pytest.approx(1, abs=0.02)
    assert rows["all tensors renamed", "zipllm"][1] < 0.9
    assert rows["an unrelated model last", "zipllm"][1] == 1.0


def test_no_traps_without_a_lineage(hub):
    assert traps(Hub(hub.contents, hub.tensors, {}, {}, SETTINGS)) == {}
