"""The page of the report, in a real browser: drawn, readable, and alive."""

import copy
from itertools import product

import pytest
from rich.console import Console
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select

from reporting.numbers import collect
from reporting.page import render
from reporting.text import print_report
from support.browser import DESK, PHONE, chromium, show
from support.inline import ingest_inline
from support.lives import add_run, file_rows, pack_rows, tensor
from tstore.catalog import open_store

CHARTS = (
    "growth", "split", "families", "spread", "graph", "heat", "scatter", "fanout", "runs",
)  # fmt: skip
LOOKS = [*product((PHONE, DESK), ("light", "dark"))]
READ_TEXT = """
const luminance = ([r, g, b]) => {
  const [x, y, z] = [r, g, b].map((c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  return 0.2126 * x + 0.7152 * y + 0.0722 * z;
};
const numbers = (text) => text.match(/[\\d.]+/g).map(Number);
const behind = (element) => {
  for (let e = element; e; e = e.parentElement) {
    const colour = numbers(getComputedStyle(e).backgroundColor);
    if (colour.length < 4 || colour[3] > 0.5) return colour;
  }
  return [255, 255, 255];
};
const found = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const element = walker.currentNode.parentElement;
  if (!walker.currentNode.data.trim() || element.closest("script, option, .hoverlayer")) continue;
  if (!element.getClientRects().length) continue;
  const style = getComputedStyle(element);
  const ink = luminance(numbers(element.closest("svg") ? style.fill : style.color));
  const paper = luminance(behind(element));
  found.push([walker.currentNode.data.trim(), parseFloat(style.fontSize),
    (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05)]);
}
return found;
"""


@pytest.fixture(scope="module")
def browser():
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def numbers(stores):
    return collect(open_store(str(stores / "two")))


@pytest.fixture(scope="module")
def page(numbers, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render(numbers), encoding="utf-8")
    return path


@pytest.fixture(scope="module", params=LOOKS, ids=lambda look: f"{look[0]}-{look[1]}")
def look(request, browser, page):
    """The page as it looks there: the width, and what the console said."""
    width, scheme = request.param
    return width, show(browser, page, width, scheme)


def cells(browser, table, column):
    """Text of a column of a table, counted from 1."""
    path = f"#{table} tbody td:nth-child({column})"
    return [cell.text for cell in browser.find_elements(By.CSS_SELECTOR, path)]


def text(browser, name):
    return browser.find_element(By.ID, name).text


def test_every_chart_is_drawn_and_nothing_complains(browser, look):
    assert look[1] == []
    for chart in CHARTS:
        drawn = browser.find_elements(By.CSS_SELECTOR, f"#{chart} svg.main-svg")
        assert drawn, chart
        assert all(svg.size["height"] >= 100 for svg in drawn[:1]), chart
    marks = (
        "return document.querySelectorAll('#growth .point, #split .point, #scatter .point').length"
    )
    assert browser.execute_script(marks) > 30
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0


def test_all_text_can_be_read(browser, look):
    found = browser.execute_script(READ_TEXT)
    assert len(found) > 200
    assert [row for row in found if row[1] < 11] == []
    assert [row for row in found if row[2] < 4.5] == []


def test_nothing_is_wider_than_the_screen(browser, look):
    check_width(browser, look[0])


@pytest.mark.parametrize("width", [320, 760])
def test_nothing_is_wider_than_an_odd_screen(browser, page, width):
    show(browser, page, width, "light")
    check_width(browser, width)


def check_width(browser, width):
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    wider = """
    return [...document.querySelectorAll("main *")].filter((e) => !e.closest(".scroll, svg, select")
      && e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.id || e.className);
    """
    assert browser.execute_script(wider) == []


def test_headline(browser, page, numbers):
    show(browser, page, DESK, "light")
    ratio = numbers["total"]["ratio_on_disk"]
    assert text(browser, "saved") == f"{100 * (1 - ratio):.1f} %"
    assert f"{numbers['total']['n_files']} files of 6 repositories" in text(browser, "lead")


def test_the_table_is_filtered_and_sorted(browser, page, numbers):
    show(browser, page, DESK, "light")
    names = [row["repo"] for row in numbers["repositories"]]
    assert cells(browser, "repositories", 1) == names  # largest first, as they come
    heads = "#repositories th button"
    browser.find_elements(By.CSS_SELECTOR, heads)[0].click()
    assert cells(browser, "repositories", 1) == sorted(names)
    browser.find_elements(By.CSS_SELECTOR, heads)[0].click()
    assert cells(browser, "repositories", 1) == sorted(names, reverse=True)
    browser.find_elements(By.CSS_SELECTOR, heads)[3].click()
    ratios = [float(cell) for cell in cells(browser, "repositories", 4)]
    assert ratios == sorted(ratios, reverse=True)
    assert len(set(ratios)) > 2
    head = browser.find_element(By.CSS_SELECTOR, "#repositories th:nth-child(4)")
    assert head.get_attribute("aria-sort") == "descending"
    browser.find_element(By.ID, "filter").send_keys("TUNED")
    assert cells(browser, "repositories", 1) == ["lab/tuned"]
    assert text(browser, "repositories-note").startswith("1 shown of 6.")


def set_value(browser, name, value):
    field = browser.find_element(By.ID, name)
    field.clear()
    field.send_keys(str(value))


def test_the_calculator(browser, page, numbers):
    show(browser, page, DESK, "light")
    before = text(browser, "cost-saved")
    for name, value in {
        "hub-tb": 100, "price-storage": 0.02, "restores": 0.5, "price-get": 0, "price-egress": 0.05,
    }.items():  # fmt: skip
        set_value(browser, name, value)
    total, reading = numbers["total"], numbers["reading"]
    scale = 100e12 / total["bytes_current"]
    read = reading["bytes_once"] * scale / 1e9 * 0.5 * 0.05
    stored = (total["bytes_packs"] + total["bytes_catalog"]) * scale / 1e9 * 0.02
    money = [cells(browser, "costs", column) for column in (2, 3)]
    as_files, here = ([float(c.lstrip("$").replace(",", "")) for c in found] for found in money)
    assert as_files == pytest.approx([2000, 0, 2500, 4500, 54000], abs=0.51)
    assert here == pytest.approx([stored, 0, read, stored + read, 12 * (stored + read)], abs=0.51)
    after = text(browser, "cost-saved")
    assert after != before
    assert after.endswith("saved a year")
    browser.find_element(By.ID, "decode-outside").click()
    assert cells(browser, "costs", 3)[2] == "$2,500"


def test_the_price_of_a_core_hour(browser, numbers, tmp_path):
    run = {**numbers["runs"][0], "core_seconds": 1800, "bytes_in": 5e11}
    (tmp_path / "r.html").write_text(render({**numbers, "runs": [run]}), encoding="utf-8")
    show(browser, tmp_path / "r.html", DESK, "light")
    assert cells(browser, "run-table", 9) == ["$0.0200"]
    set_value(browser, "core-price", 10)
    assert cells(browser, "run-table", 9) == ["$5.0000"]
    assert cells(browser, "run-table", 10) == ["$10.00"]  # of a TB


def test_choices_redraw_their_chart(browser, page):
    show(browser, page, DESK, "light")
    names = "return [...document.querySelectorAll('#split .ytick')].map((e) => e.textContent)"
    layers = browser.execute_script(names)
    Select(browser.find_element(By.ID, "split-by")).select_by_value("dtype")
    assert set(browser.execute_script(names)) == {"BF16", "OPAQUE"} != set(layers)
    heat = "return document.querySelector('#heat').data[0].z.length"
    chosen = Select(browser.find_element(By.ID, "heat-of"))
    for option in range(len(chosen.options)):
        chosen.select_by_index(option)
        assert browser.execute_script(heat) == 6
    assert browser.get_log("browser") == []


def test_the_theme_can_be_chosen(browser, page):
    show(browser, page, DESK, "light")
    paper = "return getComputedStyle(document.body).backgroundColor"
    tick = "return getComputedStyle(document.querySelector('#growth .ytick text')).fill"
    light = browser.execute_script(paper), browser.execute_script(tick)
    button = browser.find_element(By.ID, "theme")
    for label, changed in (("Light", False), ("Dark", True), ("Auto", False)):
        button.click()
        assert button.text == label
        now = browser.execute_script(paper), browser.execute_script(tick)
        assert [a != b for a, b in zip(now, light, strict=True)] == [changed] * 2


def test_names_are_text_and_nothing_else(browser, numbers, tmp_path):
    bad = "x/</script><img src=y onerror=alert(1)><b>&amp;"
    hostile = copy.deepcopy(numbers)
    hostile["store"] = bad
    for found in (hostile["repositories"], hostile["growth"], hostile["graphs"][0]["nodes"]):
        found[0]["repo"] = bad
    hostile["families"][0]["family"] = hostile["graphs"][0]["family"] = bad
    hostile["heat"][0]["columns"][1] = hostile["heat"][0]["rows"][0] = bad
    (tmp_path / "r.html").write_text(render(hostile), encoding="utf-8")
    assert show(browser, tmp_path / "r.html", DESK, "light") == []
    assert cells(browser, "repositories", 1)[0] == bad
    assert browser.find_elements(By.CSS_SELECTOR, "img") == []
    ticks = "return [...document.querySelectorAll('#families .ytick')].map((e) => e.textContent)"
    assert any("<b>&amp;" in name for name in browser.execute_script(ticks))


def test_a_store_of_nothing_but_text(browser, tmp_path):
    (tmp_path / "hub/lab/notes").mkdir(parents=True)
    (tmp_path / "hub/lab/notes/README.md").write_text("nothing but text\n" * 40)
    ingest_inline(tmp_path / "hub", tmp_path / "s")
    numbers = collect(open_store(str(tmp_path / "s")))
    (tmp_path / "r.html").write_text(render(numbers), encoding="utf-8")
    assert show(browser, tmp_path / "r.html", PHONE, "light") == []
    assert text(browser, "graph") == "No repository is a delta of another."
    assert cells(browser, "repositories", 1) == ["lab/notes"]


def test_a_store_of_which_everything_was_removed(browser, tmp_path):
    file, tensors = file_rows("lab/gone", {"w": tensor(1, 5000)})
    blobs = pack_rows("p", [(tensor(1, 5000), 4000, None)])
    add_run(tmp_path / "s", 1, "ingest", files=[file], tensors=tensors, blobs=blobs)
    removal = {"repo": "lab/gone", "revision": "main", "removed": True}
    add_run(tmp_path / "s", 2, "rm", removals=[removal])
    numbers = collect(open_store(str(tmp_path / "s")))
    print_report(numbers, Console(width=100))
    (tmp_path / "r.html").write_text(render(numbers), encoding="utf-8")
    assert show(browser, tmp_path / "r.html", DESK, "dark") == []
    assert text(browser, "split") == text(browser, "families") == "The store holds no file now."
    assert "4.00 kB in 1 of them belong to nothing" in text(browser, "space")
