"""The views and the script over a store whose numbers are known from its files and packs."""

import io
import json
import runpy
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from support.hubs import bf16_weights, safetensors_bytes, write_small_hub
from support.inline import ingest_inline
from tstore.catalog import RunMarker, keys, open_store
from tstore.catalog.catalog import commit, write_tables
from tstore.catalog.schema import TABLES
from tstore.catalog.store import open_or_create
from tstore.errors import CatalogDamagedError, StoreNotFoundError
from tstore.ids import content_hash, make_tensor_id
from tstore.settings import SketchSettings

SCRIPT = Path(__file__).parents[2] / "analytics" / "savings.py"
SAVINGS = runpy.run_path(str(SCRIPT))
REPORTS = SAVINGS["REPORTS"]
ALL_VIEWS = ("runs", *TABLES, "families", *REPORTS)
ODD_NAME = "it's a [new] *store*/env=prod/run=7"


def open_views(store):
    connection = duckdb.connect()
    connection.execute("SET VARIABLE store = ?", [str(store)])
    connection.execute(SCRIPT.with_name("views.sql").read_text())
    return connection


def rows_of(store, views):
    """Rows of several views, by view."""
    with open_views(store) as connection:
        relations = {view: connection.table(view) for view in views}
        return {
            view: [dict(zip(relation.columns, row, strict=True)) for row in relation.fetchall()]
            for view, relation in relations.items()
        }


def rows(store, view):
    return rows_of(store, [view])[view]


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Folder of a hub and two stores of it.

    ``one`` has one run. ``two`` has a second one, for which the broken file was repaired and a
    repository came. ``hub`` is the hub of the first run, ``repaired`` the new file.
    """
    root = tmp_path_factory.mktemp("stores")
    write_small_hub(root / "live")
    ingest_inline(root / "live", root / "two")
    shutil.copytree(root / "live", root / "hub")
    shutil.copytree(root / "two", root / "one")
    weights = {"w": ("BF16", bf16_weights(np.random.default_rng(3), 64, 32))}
    (root / "repaired").write_bytes(safetensors_bytes(weights))
    shutil.copy(root / "repaired", root / "live/lab/broken/model.safetensors")
    shutil.copytree(root / "live/lab/tuned", root / "live/new/copy")
    ingest_inline(root / "live", root / "two")
    return root


@pytest.fixture
def hub(stores):
    return stores / "hub"


@pytest.fixture
def store(stores):
    return stores / "one"


@pytest.fixture
def grown(stores):
    return stores / "two"


# --- the same numbers from the files and the packs --------------------------------------------


def extents_of(path):
    """(dtype, shape, bytes) of a file's pieces: header and tensors, or the whole file."""
    data = path.read_bytes()
    if path.suffix != ".safetensors" or path.parent.name == "broken":
        return [("OPAQUE", (len(data),), data)] if data else []
    stop = 8 + int.from_bytes(data[:8], "little")
    pieces = [("OPAQUE", (stop,), data[:stop])]
    for name, entry in json.loads(data[8:stop]).items():
        if name != "__metadata__":
            start, end = (stop + offset for offset in entry["data_offsets"])
            pieces.append((entry["dtype"], tuple(entry["shape"]), data[start:end]))
    return pieces


def packed(store):
    """Encoded size and flags of every blob, from the packs alone."""
    blobs = {}
    for path in (store / "packs").rglob("*.safetensors"):
        data = path.read_bytes()
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        for tensor_id, flags in header.pop("__metadata__").items():
            start, stop = header[tensor_id]["data_offsets"]
            blobs[tensor_id] = (stop - start, json.loads(flags))
    return blobs


def expected_savings(hub, store):
    """Sums by repository, dtype, codec and role, first occurrences in order of the paths."""
    blobs = packed(store)
    bases = {flags["base"] for _, flags in blobs.values() if "base" in flags}
    seen, sums = set(), defaultdict(lambda: defaultdict(int))
    for path in sorted(p for p in hub.rglob("*") if p.is_file()):
        repo = path.parent.relative_to(hub).as_posix()
        for dtype, shape, data in extents_of(path):
            tensor_id = make_tensor_id(content_hash(data), dtype, shape)
            nbytes, flags = blobs[tensor_id]
            role, codec = "duplicate", "none"
            cost = {"n_extents": 1, "bytes_in": len(data)}
            if tensor_id not in seen:
                is_base = "base" if tensor_id in bases else "alone"
                whole = "opaque" if dtype == "OPAQUE" else is_base
                role, codec = "delta" if "base" in flags else whole, flags["codec"]
                kind = "delta" if role == "delta" else "standalone"
                cost |= {"bytes_after_dedup": len(data), "bytes_stored": nbytes}
                cost[f"saved_by_{kind}"] = len(data) - nbytes
            else:
                cost["saved_by_dedup"] = len(data)
            seen.add(tensor_id)
            for view in (("repository", repo), ("dtype", dtype), ("codec", codec), ("role", role)):
                for name, value in cost.items():
                    sums[view][name] += value
    return sums


def test_savings_are_those_of_the_files_and_packs(hub, store):
    expected = expected_savings(hub, store)
    for view, key in (("repository", "repo"), ("dtype",) * 2, ("codec",) * 2, ("role",) * 2):
        found = {row[key]: row for row in rows(store, f"savings_by_{view}")}
        assert set(found) == {value for name, value in expected if name == view}
        for value, row in found.items():
            sums = expected[view, value]
            names = [n for n in row if n.startswith(("n_extents", "bytes_", "saved_"))]
            names.remove("bytes_predicted")
            assert {name: row[name] for name in names} == {name: sums[name] for name in names}
            assert row["ratio"] == sums["bytes_stored"] / sums["bytes_in"]
    assert {"duplicate", "delta", "base", "alone", "opaque"} == {
        value for name, value in expected if name == "role"
    }


def test_totals_are_those_of_the_directories(hub, store):
    (run,) = rows(store, "savings_by_run")
    (total,) = rows(store, "savings_total")
    raw = sum(path.stat().st_size for path in hub.rglob("*") if path.is_file())
    packs = sum(path.stat().st_size for path in (store / "packs").rglob("*.safetensors"))
    catalog = sum(path.stat().st_size for path in (store / "catalog").rglob("*.parquet"))
    assert total["bytes_in"] == total["bytes_current"] == run["bytes_in"] == raw
    assert total["bytes_packs"] == run["bytes_packs"] == packs
    assert total["bytes_catalog"] == run["bytes_catalog"] == catalog
    assert total["bytes_stored"] == sum(nbytes for nbytes, _ in packed(store).values())
    assert total["ratio_on_disk"] == (packs + catalog) / raw
    saved = sum(total[f"saved_by_{how}"] for how in ("dedup", "standalone", "delta"))
    assert total["bytes_in"] - saved == total["bytes_stored"]


def test_runs_add_up(stores, hub, store, grown):
    first, second = rows(grown, "savings_by_run")
    assert first == rows(store, "savings_by_run")[0]
    assert first["run"] < second["run"]
    (total,) = rows(grown, "savings_total")
    for name in ("n_extents", "bytes_in", "bytes_after_dedup", "bytes_stored", "bytes_packs"):
        assert total[name] == first[name] + second[name]
    for view in ("repository", "family", "dtype", "codec", "role"):
        found = rows(grown, f"savings_by_{view}")
        assert sum(row["bytes_stored"] for row in found) == total["bytes_stored"]
    broken = (hub / "lab/broken/model.safetensors").stat().st_size
    repaired = (stores / "repaired").stat().st_size
    tuned = sum(path.stat().st_size for path in (hub / "lab/tuned").iterdir())
    assert second["bytes_in"] == repaired + tuned
    assert total["bytes_current"] == first["bytes_in"] - broken + second["bytes_in"]


def test_prediction_errors_match_numpy(grown):
    catalog = open_store(str(grown)).catalog()
    blobs = {
        (row["run"], row["tensor_id"]): row
        for row in catalog.dataset("blobs").to_table().to_pylist()
    }
    misses = defaultdict(list)
    for plan in catalog.dataset("plans").to_table().to_pylist():
        blob = blobs[plan["run"], plan["tensor_id"]]
        miss = plan["predicted_ratio"] - blob["nbytes"] / blob["raw_nbytes"]
        misses[plan["dtype"], plan["codec"]].append((miss, blob["raw_nbytes"]))
    found = rows(grown, "predicted_against_real")
    assert [(row["dtype"], row["codec"]) for row in found] == sorted(misses)
    for row in found:
        miss, weight = np.array(misses[row["dtype"], row["codec"]]).T
        quantiles = np.quantile(abs(miss), [0.5, 0.9, 0.99])
        assert row["n"] == miss.size
        assert row["n_other_codec"] == 0
        assert row["mae"] == pytest.approx(abs(miss).mean(), rel=1e-9)
        assert [row["p50"], row["p90"], row["p99"]] == pytest.approx(quantiles, rel=1e-9)
        assert row["bias"] == pytest.approx(miss.mean(), rel=1e-9)
        assert row["bias_by_bytes"] == pytest.approx(np.average(miss, weights=weight), rel=1e-9)


def test_a_reject_is_shown_until_the_file_is_repaired(store, grown):
    (reject,) = rows(store, "rejected")
    assert (reject["repo"], reject["path"]) == ("lab/broken", "model.safetensors")
    assert (reject["reason"], reject["stored"]) == ("OffsetRangeError", True)
    assert rows(grown, "rejected") == []
    assert len(rows(grown, "rejects")) == 1


# --- what the views may see -------------------------------------------------------------------


@pytest.mark.parametrize("view", [*TABLES, "current_files", "current_blobs"])
def test_rows_are_those_of_the_catalog(grown, view):
    def content(connection):
        relation = connection.sql(f"FROM {view}")
        return relation.columns, sorted(map(repr, relation.fetchall()))

    with open_store(str(grown)).catalog().connect() as connection:
        expected = content(connection)
    with open_views(grown) as connection:
        assert content(connection) == expected
    assert view == "rejects" or len(expected[1]) > 2


def test_runs_are_those_of_the_markers(grown):
    markers = open_store(str(grown)).catalog().runs
    found = rows(grown, "runs")
    assert [row["run"] for row in found] == [marker.run_id for marker in markers]
    assert [json.loads(row["counts"]) for row in found] == [marker.counts for marker in markers]
    times = [marker.committed_at.removesuffix("+00:00") for marker in markers]
    assert [row["committed_at"].isoformat() for row in found] == times


def test_an_uncommitted_run_is_invisible(store, grown, tmp_path):
    shutil.copytree(grown, tmp_path / "s")
    last = open_store(str(grown)).catalog().runs[-1]
    (tmp_path / "s" / keys.run_marker(last.run_id)).unlink()
    assert any((tmp_path / "s" / keys.table_run("files", last.run_id)).iterdir())
    assert rows_of(tmp_path / "s", ALL_VIEWS) == rows_of(store, ALL_VIEWS)


def test_a_store_may_lie_anywhere(grown, tmp_path):
    shutil.copytree(grown, tmp_path / ODD_NAME)
    assert rows_of(tmp_path / ODD_NAME, ALL_VIEWS) == rows_of(grown, ALL_VIEWS)


def test_tables_without_rows(tmp_path):
    (tmp_path / "hub/lab/notes").mkdir(parents=True)
    (tmp_path / "hub/lab/notes/README.md").write_text("nothing but text\n" * 40)
    ingest_inline(tmp_path / "hub", tmp_path / "s")
    found = rows_of(tmp_path / "s", ALL_VIEWS)
    for view in ("tensors", "fingerprints", "pairs", "rejects", "rejected"):
        assert found[view] == []
    (family,) = found["savings_by_family"]
    assert (family["family"], family["bytes_in"]) == ("lab/notes", 17 * 40)
    plain = duckdb.sql(f"FROM read_parquet('{tmp_path}/s/catalog/rejects/*/*.parquet')")
    assert plain.columns == [*TABLES["rejects"].names, "run"]


def test_a_lost_part_is_an_error(store, tmp_path):
    shutil.copytree(store, tmp_path / "s")
    next((tmp_path / "s/catalog/savings").rglob("*.parquet")).unlink()
    with pytest.raises(CatalogDamagedError, match="No files found"):
        SAVINGS["read_reports"](open_store(str(tmp_path / "s")))


def test_the_store_must_be_named():
    with duckdb.connect() as connection, pytest.raises(duckdb.Error, match="SET VARIABLE store"):
        connection.execute(SCRIPT.with_name("views.sql").read_text())


# --- families ---------------------------------------------------------------------------------


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


# --- the script -------------------------------------------------------------------------------


def test_json_holds_every_report(grown, capsys):
    SAVINGS["main"](store=str(grown), as_json=True)
    assert json.loads(capsys.readouterr().out) == rows_of(grown, REPORTS)


@pytest.mark.parametrize("width", [60, 200])
def test_tables_fit_the_terminal(store, width):
    out = io.StringIO()
    SAVINGS["print_reports"](
        SAVINGS["read_reports"](open_store(str(store))), Console(file=out, width=width)
    )
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    titles = [line.rstrip() for line in lines if line.startswith(("savings", "predicted", "rej"))]
    assert titles == [name.replace("_", " ") for name in REPORTS]


def test_long_reports_end_early():
    out = io.StringIO()
    reports = {"savings_by_repository": [{"repo": f"lab/{n}", "bytes_in": n} for n in range(23)]}
    SAVINGS["print_reports"](reports, Console(file=out, width=80))
    assert "lab/19 " in out.getvalue()
    assert "lab/20 " not in out.getvalue()
    assert "and 3 more" in out.getvalue()


def test_a_store_without_a_run(tmp_path):
    store = open_or_create(str(tmp_path / "s"), SketchSettings())
    with pytest.raises(StoreNotFoundError, match="ingest a hub first"):
        SAVINGS["read_reports"](store)


def test_errors_are_one_line(tmp_path):
    command = [sys.executable, str(SCRIPT), "--store", str(tmp_path / "none")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: expected a tstore store at ")
    assert done.stderr.count("\n") == 1
