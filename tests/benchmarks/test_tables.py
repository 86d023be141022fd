"""Tables become files and parts of a page."""

from math import nan

from benchmarks.planning.tables import Table, fill

TABLE = Table("some", ("what", "n", "share"), [("a", 3, 0.25), ("b", 12345, nan), ("c", 0, 678.9)])


def test_csv(tmp_path):
    TABLE.write(tmp_path)
    text = (tmp_path / "some.csv").read_text()
    assert text == "what,n,share\na,3,0.2500\nb,12345,–\nc,0,679\n"


def test_markdown():
    assert TABLE.markdown().splitlines() == [
        "| what | n | share |",
        "| --- | ---: | ---: |",
        "| a | 3 | 0.2500 |",
        "| b | 12345 | – |",
        "| c | 0 | 679 |",
    ]


def test_a_page_gets_its_tables_and_keeps_the_rest():
    page = "x\n<!-- table some -->\nold\nrows\n<!-- end -->\ny\n<!-- table other -->\nz\n<!-- end -->\n"
    filled = fill(page, [TABLE])
    assert filled == page.replace("old\nrows\n", TABLE.markdown())
    assert fill(filled, [TABLE]) == filled
