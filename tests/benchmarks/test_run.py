"""The program: from a hub to tables, figures and the page."""

import re
import sys

from benchmarks.planning import __main__ as program
from benchmarks.planning.figures import FIGURES


def test_a_run_writes_its_results(hub_folder, cache, tmp_path, monkeypatch):
    out, page = tmp_path / "out", tmp_path / "RESULTS.md"
    page.write_text("# Results\n<!-- table hub -->\n<!-- end -->\nas they are\n")
    monkeypatch.setattr(program, "RESULTS", out)
    monkeypatch.setattr(program, "PAGE", page)
    arguments = ["--hub", str(hub_folder), "--cache", str(cache), "--only", "hub", "traps"]
    monkeypatch.setattr(sys, "argv", ["planning", *arguments])
    program.main()
    assert {path.name for path in out.iterdir()} == {"hub.csv", "traps.csv", "traps.png"}
    assert "models,6\n" in (out / "hub.csv").read_text()
    assert (out / "traps.png").read_bytes().startswith(b"\x89PNG")
    assert "| models | 6 |\n" in page.read_text()
    assert page.read_text().endswith("<!-- end -->\nas they are\n")


def test_every_table_on_the_page_is_one_that_a_run_makes():
    """So is every figure; a renamed table would leave old numbers standing."""
    results = program.FOLDER / "results" / "planning"
    written = {path.stem for path in results.glob("*.csv")}
    page = program.PAGE.read_text()
    shown = set(re.findall(r"<!-- table (\S+) -->", page))
    drawn = set(re.findall(r"results/planning/(\S+)\.png", page))
    assert shown <= written
    assert drawn == set(FIGURES) <= written
    for name in shown:
        rows = (results / f"{name}.csv").read_text().splitlines()[1:]
        place = page.split(f"<!-- table {name} -->\n")[1].split("<!-- end -->")[0]
        assert len(place.splitlines()) == len(rows) + 2
