"""The made-up catalog: whole, consistent, the same each time."""

import pytest

from benchmarks import simulate_catalog
from support.views import rows, rows_of
from tstore.catalog import open_store


def made(folder):
    simulate_catalog.simulate(str(folder), 60 * len(simulate_catalog.TEMPLATE))
    return folder


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return made(tmp_path_factory.mktemp("made") / "s")


def test_the_views_add_up(store):
    found = rows_of(store, ["now_total", "savings_total", "savings_by_run", "families", "rejected"])
    (now,), (booked,) = found["now_total"], found["savings_total"]
    assert now["n_repositories"] == 60
    assert now["n_extents"] == 60 * (len(simulate_catalog.TEMPLATE) + 1)
    for name in ("bytes_in", "bytes_after_dedup", "bytes_stored", "saved_by_delta"):
        assert now[name] == booked[name] > 0
    markers = open_store(str(store)).catalog().runs
    assert [row["bytes_packs"] for row in found["savings_by_run"]] == [
        marker.counts["bytes_stored"] for marker in markers
    ]
    assert {row["family"] for row in found["families"]} == {"org-000/model-00", "org-001/model-00"}
    assert now["bytes_unreferenced"] == 0


def test_it_is_the_same_each_time(store, tmp_path):
    first, second = (open_store(str(each)).catalog() for each in (store, made(tmp_path / "again")))
    assert [run.tables for run in first.runs] == [run.tables for run in second.runs]


def test_layers_are_known(store):
    layers = {row["layer"] for row in rows(store, "now_by_layer")}
    assert layers == {
        "embedding", "head", "norm", "mlp", "opaque",
        "attention q", "attention k", "attention v", "attention o",
    }  # fmt: skip
