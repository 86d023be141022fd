"""Families of repositories, against their definition in plain Python."""

from collections import defaultdict

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from support.views import rows
from tstore.catalog import RunMarker
from tstore.catalog.catalog import commit, write_tables
from tstore.catalog.schema import TABLES
from tstore.catalog.store import open_or_create
from tstore.ids import make_tensor_id
from tstore.settings import SketchSettings


def test_families_of_the_small_hub(grown):
    families = families_of(grown)
    assert families == {
        "lab/base": "lab/base",
        "lab/broken": "lab/broken",
        "lab/tuned": "lab/base",
        "mirror/base-again": "lab/base",
        "new/copy": "lab/base",
        "other/unrelated": "other/unrelated",
    }
    (row,) = [r for r in rows(grown, "savings_by_family") if r["family"] == "lab/base"]
    assert row["n_repositories"] == 4
    members = [r for r in rows(grown, "savings_by_repository") if families[r["repo"]] == "lab/base"]
    assert row["bytes_in"] == sum(member["bytes_in"] for member in members)


def expected_families(held, base_of):
    """The definition of analytics/README.md, in plain Python. `held`: repository to tensors."""
    size = {tensor: 1 + tensor for tensor in range(len(base_of))}
    origin = {t: min(repo for repo in held if t in held[repo]) for t in set().union(*held.values())}
    gives = {repo: defaultdict(int) for repo in held}
    for repo, tensors in held.items():
        for tensor in tensors:
            base = base_of[tensor]
            gives[origin[tensor if base is None else base]][repo] += size[tensor]
    given = {repo: sum(n for to, n in gives[repo].items() if to != repo) for repo in held}
    order = sorted(held, key=lambda repo: (-given[repo], repo))
    family = {}
    for place, repo in enumerate(order):
        before = order[:place]
        total = sum(size[tensor] for tensor in held[repo])
        linked = any(gives[p][repo] for p in before) and (
            4 * sum(gives[p][repo] for p in before) >= total
        )
        parent = max(before, key=lambda p: gives[p][repo]) if linked else None
        family[repo] = repo if parent is None else family[parent]
    return family


def write_catalog(store, held, base_of, run="20250101T000000.000000Z"):
    """A committed run with these tensors and bases, and nothing in its packs."""
    ids = [make_tensor_id(f"{t:032x}", "U8", [1 + t]) for t in range(len(base_of))]
    text = {"revision": "main", "path": "f"}
    files = [{"repo": r, **text, "refs": [], "nbytes": 0, "sha256": "", "source_tag": "",
              "layout": []} for r in held]  # fmt: skip
    tensors = [{"repo": r, **text, "name": str(t), "tensor_id": ids[t], "dtype": "U8",
                "shape": [1 + t], "start": 0, "nbytes": 1 + t}
               for r in held for t in held[r]]  # fmt: skip
    blobs = [{"tensor_id": ids[t], "sha256": "", "dtype": "U8", "raw_nbytes": 1 + t, "pack": "",
              "offset": 0, "nbytes": 1, "codec": "", "checksum": "",
              "base_id": None if base is None else ids[base]}
             for t, base in enumerate(base_of)]  # fmt: skip
    tables = {name: schema.empty_table() for name, schema in TABLES.items()}
    for name, values in (("files", files), ("tensors", tensors), ("blobs", blobs)):
        tables[name] = pa.Table.from_pylist(values, TABLES[name])
    objects = open_or_create(str(store), SketchSettings()).objects
    parts = write_tables(objects, run, tables)
    commit(objects, RunMarker(run, "ingest", "0", {}, {}, parts))


def families_of(store):
    return {row["repo"]: row["family"] for row in rows(store, "families")}


def test_a_quarter_links(tmp_path):
    """Tensor t has t + 1 bytes: b has 1 of its 4 bytes from a, c only 1 of 5."""
    write_catalog(tmp_path / "s", {"a": {0}, "b": {0, 2}, "c": {0, 3}}, [None] * 4)
    assert families_of(tmp_path / "s") == {"a": "a", "b": "a", "c": "c"}


def test_the_newest_blob_of_a_tensor_counts(tmp_path):
    held = {"a": {0}, "b": {1}}
    write_catalog(tmp_path / "s", held, [None, 0])
    assert families_of(tmp_path / "s") == {"a": "a", "b": "a"}
    write_catalog(tmp_path / "s", held, [None, None], run="20250102T000000.000000Z")
    assert families_of(tmp_path / "s") == {"a": "a", "b": "b"}
    assert [blob["base_id"] for blob in rows(tmp_path / "s", "current_blobs")] == [None, None]


def test_a_tie_goes_to_the_first_name(tmp_path):
    """Tensor t has t + 1 bytes: c has 3 from a and 3 from b, which give no more than that."""
    write_catalog(tmp_path / "s", {"a": {2}, "b": {0, 1}, "c": {0, 1, 2}}, [None] * 3)
    assert families_of(tmp_path / "s") == {"a": "a", "b": "b", "c": "a"}


@st.composite
def base_graphs(draw):
    """Up to eight repositories that hold some of twelve tensors, some of them deltas."""
    whole = draw(st.integers(1, 6))
    deltas = 12 - whole
    base_of = [None] * whole
    base_of += draw(st.lists(st.integers(0, whole - 1), min_size=deltas, max_size=deltas))
    repos = [f"lab/{letter}" for letter in "abcdefgh"[: draw(st.integers(1, 8))]]
    held = {repo: draw(st.sets(st.integers(0, 11), max_size=5)) for repo in repos}
    held[repos[draw(st.integers(0, len(repos) - 1))]] |= set(range(whole))  # bases are somewhere
    return held, base_of


@settings(max_examples=12)
@given(base_graphs())
def test_families_match_their_definition(tmp_path_factory, graph):
    held, base_of = graph
    store = tmp_path_factory.mktemp("graph") / "s"
    write_catalog(store, held, base_of)
    assert families_of(store) == expected_families(held, base_of)
