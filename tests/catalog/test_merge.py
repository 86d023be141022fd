"""Merging small parts: nothing changes but the number of files."""

from __future__ import annotations

import pytest

from support.catalogs import RUNS, add_run, marker
from tstore.catalog import Catalog
from tstore.catalog import merge as merging
from tstore.catalog.catalog import commit, write_tables
from tstore.catalog.merge import Merge, plan_merge
from tstore.catalog.schema import TABLES
from tstore.objects import open_objects


@pytest.fixture
def objects(tmp_path):
    return open_objects(str(tmp_path / "store"))


def rows_of(catalog, name):
    return sorted(map(str, catalog.dataset(name).to_table().to_pylist()))


def merge(catalog, run_id, plan):
    parts = write_tables(catalog.objects, run_id, plan.rows(catalog))
    commit(catalog.objects, marker(run_id, parts, merged=plan.keys))


def test_rows_keep_their_run_and_are_in_fewer_parts(objects, monkeypatch):
    monkeypatch.setattr(merging, "AT_LEAST", 3)
    for run in RUNS[:3]:
        add_run(objects, run, **{name: [{}, {}] for name in TABLES})
    before = Catalog(objects)
    merge(before, RUNS[3], plan_merge(before))
    after = Catalog(objects)
    assert plan_merge(after) == Merge()
    for name in TABLES:
        assert len(before.parts(name)) == 3
        assert len(after.parts(name)) == 1
        assert rows_of(after, name) == rows_of(before, name)
    with Catalog(objects, until=RUNS[0]).connect() as connection:
        assert connection.sql("SELECT DISTINCT run FROM files").fetchall() == [(RUNS[0],)]


def test_few_parts_and_large_ones_are_left_alone(objects, monkeypatch):
    monkeypatch.setattr(merging, "AT_LEAST", 3)
    for run in RUNS[:3]:
        add_run(objects, run, files=[{}])
    add_run(objects, RUNS[3], blobs=[{}])
    assert list(plan_merge(Catalog(objects)).parts) == ["files"]
    monkeypatch.setattr(merging, "SMALL_NBYTES", 1)
    assert plan_merge(Catalog(objects)) == Merge()


def test_many_fingerprints_stay_in_parts_of_bounded_size(objects, monkeypatch):
    monkeypatch.setattr(merging, "AT_LEAST", 2)
    monkeypatch.setattr(merging, "_FINGERPRINT_ROWS", 4)
    for run in RUNS[:3]:
        add_run(objects, run, fingerprints=[{}] * 3)
    catalog = Catalog(objects)
    merge(catalog, RUNS[3], plan_merge(catalog))
    assert [part.rows for part in Catalog(objects).parts("fingerprints")] == [6, 3]
