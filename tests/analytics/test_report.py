"""analytics/report.py: numbers, text and JSON."""

import json
import subprocess
import sys

import numpy as np
import pytest
from rich.console import Console

import report
from reporting.heat import heat_maps
from reporting.numbers import collect
from reporting.page import render
from reporting.text import print_report
from support.views import ANALYTICS, open_views, rows, rows_of
from tstore.catalog import open_store
from tstore.predict.tensorpred import TensorPred
from tstore.sketch.distances import group_distances
from tstore.sketch.layout import SketchLayout


@pytest.fixture(scope="module")
def numbers(stores):
    return collect(open_store(str(stores / "two")))


def test_numbers_are_those_of_the_views(numbers, grown):
    views = rows_of(grown, ["now_total", "now_by_layer", "growth", "predicted_against_real"])
    assert numbers["total"] == views["now_total"][0]
    assert numbers["splits"]["layer"] == views["now_by_layer"]
    assert numbers["errors"] == views["predicted_against_real"]
    assert [row["total_stored"] for row in numbers["growth"]] == [
        row["total_stored"] for row in views["growth"]
    ]
    assert len(numbers["predictions"]) == sum(
        row["raw_nbytes"] >= 4096 for row in rows(grown, "predictions")
    )


def test_repositories_and_families(numbers, grown):
    by_repo = {row["repo"]: row for row in rows(grown, "now_by_repository")}
    assert {row["repo"] for row in numbers["repositories"]} == set(by_repo)
    for row in numbers["repositories"]:
        assert row["bytes_stored"] == by_repo[row["repo"]]["bytes_stored"]
    members = {row["repo"]: row["family"] for row in rows(grown, "families")}
    for family in numbers["families"]:
        ratios = [r["ratio"] for repo, r in by_repo.items() if members[repo] == family["family"]]
        assert family["quantiles"] == pytest.approx(np.quantile(ratios, [0, 0.25, 0.5, 0.75, 1]))


def test_graph_is_that_of_the_bases(numbers):
    (graph,) = numbers["graphs"]
    assert graph["family"] == "lab/base"
    assert graph["n_repositories"] == len(graph["nodes"]) == 4
    assert {(edge["repo"], edge["base_repo"]) for edge in graph["edges"]} == {
        ("lab/tuned", "lab/base"), ("new/copy", "lab/base"),
    }  # fmt: skip


def test_runs_tell_where_their_time_went(numbers, grown):
    markers = open_store(str(grown)).catalog().runs
    for run, marker in zip(numbers["runs"], markers, strict=True):
        stages = marker.counts["stages"]
        assert run["seconds"] == {name: stage["seconds"] for name, stage in stages.items()}
        assert run["core_seconds"] == sum(stage["task_seconds"] for stage in stages.values())
        assert run["bytes_in"] == marker.counts["bytes_in"]
        assert run["bytes_packs"] == marker.counts["bytes_stored"]


def test_heat_maps_are_predictions_of_the_store(grown):
    """Of one tensor against the repositories beside it, one pair of sketches after the other."""
    store = open_store(str(grown))
    with open_views(grown) as connection:
        maps = heat_maps(store, connection)
    tuned = next(found for found in maps if found["repo"] == "lab/tuned")
    assert tuned["columns"] == ["alone", "lab/base", "mirror/base-again", "new/copy"]
    assert tuned["rows"] == [f"layer.{i}.weight" for i in range(6)]
    column = tuned["columns"].index("lab/base")
    assert tuned["chosen"] == [column] * 6
    tensors = {
        (row["repo"], row["name"]): row
        for row in rows(grown, "FROM tensors JOIN fingerprints USING (tensor_id)")
    }
    text = store.objects.get("models/tensorpred/BF16-ulprow.json")
    predictor = TensorPred.from_json(json.loads(text))
    layout = SketchLayout.of("BF16", store.sketch)
    bases = [tensors["lab/base", name]["sketch"] for name in tuned["rows"]]
    for row, name in enumerate(tuned["rows"]):
        own = np.array([tensors["lab/tuned", name]["sketch"]], np.int16)
        ratios = [
            predictor.ratio(
                group_distances(own, np.array([base], np.int16), layout, 128 * 96 * 2), 128 * 96 * 2
            ).item()
            for base in bases
        ]
        assert tuned["values"][row][column] == pytest.approx(min(ratios), abs=1e-4)
        assert tuned["values"][row][tuned["columns"].index("new/copy")] == 0.0  # the same tensor


def test_text_fits_the_terminal(numbers, capsys):
    print_report(numbers, Console(width=120))
    lines = capsys.readouterr().out.splitlines()
    ratio = numbers["total"]["ratio_on_disk"]
    assert lines[0] == f"{numbers['store']}: {1 - ratio:.1%} saved"
    assert max(map(len, lines[1:])) <= 120
    assert any(line.startswith("lab/base ") for line in lines)


def test_json(grown, numbers, capsys):
    report.main(store=str(grown), as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert told == json.loads(json.dumps({**numbers, "made_at": told["made_at"]}))


def test_errors_are_one_line(tmp_path):
    script = ANALYTICS / "report.py"
    command = [sys.executable, str(script), "--store", str(tmp_path / "none")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: expected a tstore store at ")
    assert done.stderr.count("\n") == 1


def test_the_page_names_nothing_outside(numbers):
    own = render(numbers).partition("<script>")[0]
    assert "://" not in own
    assert "default-src 'none'" in own
