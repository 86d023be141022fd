"""Tables, commit markers, and what readers see of runs."""

import re
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from support.catalogs import RUNS, add_run, marker, sample_rows
from tstore.catalog import Catalog, keys
from tstore.catalog import catalog as catalog_module
from tstore.catalog.catalog import commit, write_tables
from tstore.catalog.parquet import read_parts, to_bytes
from tstore.catalog.runs import new_run_id, read_markers
from tstore.catalog.schema import SCHEMA_VERSION, SORT_KEYS, STAGED_TABLES, TABLES
from tstore.errors import (
    CatalogDamagedError,
    LeaseLostError,
    PlanInvariantError,
    RevisionNotFoundError,
    StoreFormatError,
)
from tstore.objects import open_objects


@pytest.fixture
def objects(tmp_path):
    return open_objects(str(tmp_path / "store"))


# --- rows -------------------------------------------------------------------------------------


def sort_key(name):
    return lambda row: [str(row[column]) for column in SORT_KEYS[name]]


def query(objects, text, *, until=None):
    with Catalog(objects, until=until).connect() as connection:
        return connection.sql(text).fetchall()


@pytest.mark.parametrize("name", TABLES)
def test_rows_survive_sorted(objects, name):
    rows = sample_rows(TABLES[name])
    commit(objects, marker(RUNS[0], write_tables(objects, RUNS[0], {name: rows})))
    read = Catalog(objects).dataset(name).to_table()
    assert set(read["run"].to_pylist()) == {RUNS[0]}
    read = read.select(rows.column_names).cast(rows.schema)
    assert read.to_pylist() == sorted(rows.to_pylist(), key=sort_key(name))


@pytest.mark.parametrize("name", STAGED_TABLES)
def test_staged_rows_survive(objects, name):
    rows = sample_rows(STAGED_TABLES[name])
    objects.put("part.parquet", [to_bytes(rows)])
    read = read_parts(objects, ["part.parquet"], rows.schema).to_table(columns=rows.column_names)
    assert read.cast(rows.schema).equals(rows)


@pytest.mark.parametrize("schemas", [TABLES, STAGED_TABLES], ids=["catalog", "staged"])
def test_every_column_is_described(schemas):
    for schema in schemas.values():
        for field in schema:
            assert field.metadata[b"doc"], field.name


def test_equal_rows_give_equal_bytes():
    for schema in TABLES.values():
        assert to_bytes(sample_rows(schema)) == to_bytes(sample_rows(schema))


def test_many_rows_are_cut_into_sorted_parts(objects, monkeypatch):
    monkeypatch.setattr(catalog_module, "PART_ROWS", 3)
    rows = sample_rows(TABLES["blobs"])
    parts = write_tables(objects, RUNS[0], {"blobs": rows})["blobs"]
    assert [part.rows for part in parts] == [3, 3, 1]
    assert [part.key for part in parts] == [keys.part("blobs", RUNS[0], n) for n in range(3)]
    assert [objects.head(part.key).nbytes for part in parts] == [part.nbytes for part in parts]
    commit(objects, marker(RUNS[0], {"blobs": parts}))
    ids = Catalog(objects).dataset("blobs").to_table()["tensor_id"].to_pylist()
    assert ids == sorted(rows["tensor_id"].to_pylist())


def test_an_empty_table_can_be_read_by_everyone(objects, tmp_path):
    (part,) = write_tables(objects, RUNS[0], {"files": TABLES["files"].empty_table()})["files"]
    assert part.rows == 0
    commit(objects, marker(RUNS[0], {"files": [part]}))
    assert query(objects, "SELECT count(*) FROM current_files") == [(0,)]
    folder = tmp_path / "store/catalog/files"
    plain = f"SELECT * FROM read_parquet('{folder}/**/*.parquet')"
    assert duckdb.sql(plain).fetchall() == []


def test_rows_of_another_schema_are_refused(objects):
    with pytest.raises(PlanInvariantError, match="columns of files"):
        write_tables(objects, RUNS[0], {"files": sample_rows(TABLES["blobs"])})


# --- runs -------------------------------------------------------------------------------------


def test_a_run_is_invisible_until_its_marker(objects):
    parts = write_tables(objects, RUNS[0], {"files": sample_rows(TABLES["files"])})
    assert Catalog(objects).runs == ()
    assert query(objects, "SELECT * FROM files") == []
    opened = Catalog(objects)
    commit(objects, marker(RUNS[0], parts))
    assert len(query(objects, "SELECT * FROM files")) == 7
    assert opened.parts("files") == [], "a commit does not change what a reader opened before"


def test_a_run_is_committed_once(objects):
    first = marker(RUNS[0], {})
    commit(objects, first)
    with pytest.raises(LeaseLostError, match="nothing was committed"):
        commit(objects, replace(first, tool_version="other"))
    assert read_markers(objects) == (first,)


def test_markers_survive_and_come_oldest_first(objects):
    written = [marker(run, {}) for run in (RUNS[2], RUNS[0], RUNS[1])]
    for one in written:
        commit(objects, one)
    parts = write_tables(objects, RUNS[3], {"files": sample_rows(TABLES["files"])})
    written.append(marker(RUNS[3], parts))
    commit(objects, written[-1])
    assert list(read_markers(objects)) == sorted(written, key=lambda one: one.run_id)


def test_the_newest_run_of_a_revision_lists_its_files(objects):
    one = {"repo": "a", "revision": "main"}
    add_run(objects, RUNS[0], files=[{**one, "path": "x"}, {**one, "path": "gone"}])
    add_run(objects, RUNS[1], files=[{"repo": "b", "revision": "main", "path": "y"}])
    add_run(objects, RUNS[2], files=[{**one, "path": "x"}, {"repo": "a", "revision": "dev"}])
    found = query(objects, "SELECT repo, revision, path, run FROM current_files WHERE path < 'z'")
    assert {row for row in found if row[1] == "main"} == {
        ("a", "main", "x", RUNS[2]),
        ("b", "main", "y", RUNS[1]),
    }
    assert {row[1] for row in found if row[0] == "a"} == {"main", "dev"}
    before = query(objects, "SELECT path, run FROM current_files ORDER BY 1", until=RUNS[1])
    assert before == [("gone", RUNS[0]), ("x", RUNS[0]), ("y", RUNS[1])]


def test_the_newest_blob_of_a_tensor_counts(objects):
    add_run(objects, RUNS[0], blobs=[{"tensor_id": "t", "pack": "p1"}, {"tensor_id": "u"}])
    add_run(objects, RUNS[1], blobs=[{"tensor_id": "t", "pack": "p2"}])
    text = "SELECT pack FROM current_blobs WHERE tensor_id = 't'"
    assert query(objects, text) == [("p2",)]
    assert query(objects, text, until=RUNS[0]) == [("p2",)], "the pack of the first may be gone"
    assert query(objects, "SELECT count(*) FROM current_blobs") == [(2,)]


def test_a_blob_in_a_pack_that_was_given_up_does_not_count(objects):
    add_run(objects, RUNS[0], blobs=[{"tensor_id": "t", "pack": "p1"}, {"tensor_id": "u"}])
    add_run(objects, RUNS[1], blobs=[{"tensor_id": "t", "pack": "p2"}])
    add_run(objects, RUNS[2], dropped_packs=[{"pack": "p2"}])
    assert query(objects, "SELECT tensor_id FROM current_blobs") == [("u",)], "nor an earlier one"


def test_a_removed_revision_comes_back_when_it_is_taken_in_or_taken_back(objects):
    one, other = ({"repo": "r", "revision": name} for name in ("one", "other"))
    add_run(objects, RUNS[0], files=[one, other])
    text = "SELECT revision FROM current_files ORDER BY 1"
    kept = "SELECT revision, run FROM kept_files ORDER BY 1, 2"
    add_run(objects, RUNS[1], removals=[{**one, "removed": True}])
    assert query(objects, text) == [("other",)]
    assert query(objects, text, until=RUNS[0]) == [("one",), ("other",)]
    add_run(objects, RUNS[2], files=[one])
    assert query(objects, text) == [("one",), ("other",)]
    assert query(objects, kept) == [("one", RUNS[2]), ("other", RUNS[0])]
    add_run(objects, RUNS[3], removals=[{**one, "removed": True}, {**other, "removed": True}])
    assert query(objects, text) == []
    add_run(objects, RUNS[4], removals=[{**other, "removed": False}])
    assert query(objects, text) == [("other",)]


@pytest.mark.parametrize("until", ["20250101T000000.000001Z", "garbage", "zzz"])
def test_until_must_name_a_run(objects, until):
    add_run(objects, RUNS[0], files=[{}])
    add_run(objects, RUNS[1], files=[{}])
    with pytest.raises(RevisionNotFoundError, match=until):
        Catalog(objects, until=until)


def test_run_ids_only_grow():
    first = new_run_id(None)
    assert new_run_id(first) > first
    future = "29990101T000000.000000Z-ffff"
    assert new_run_id(future).startswith("29990101T000000.000001Z-")
    assert len({len(run) for run in (first, future)}) == 1, "sorted as text"


# --- other readers ----------------------------------------------------------------------------


def test_duckdb_and_pyarrow_read_the_tables_without_us(objects, tmp_path):
    for run in RUNS[:2]:
        add_run(objects, run, **{name: [{}, {}] for name in TABLES})
    for name, schema in TABLES.items():
        folder = tmp_path / "store" / "catalog" / name
        rows = duckdb.sql(f"SELECT * FROM read_parquet('{folder}/**/*.parquet')")
        assert rows.columns == [*schema.names, "run"]
        assert sorted(str(row[-1]) for row in rows.fetchall()) == sorted(RUNS[:2] * 2)
        table = ds.dataset(folder).to_table()
        assert table.column_names == [*schema.names, "run"]
        assert sorted(table["run"].to_pylist()) == sorted(RUNS[:2] * 2)


# --- damage -----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [SCHEMA_VERSION + 1, 0, None, "1"])
def test_a_marker_of_another_schema_is_refused(objects, version):
    other = replace(marker(RUNS[0], {}), schema_version=version)
    objects.put(keys.run_marker(RUNS[0]), [other.to_bytes()])
    with pytest.raises(StoreFormatError, match=rf"found {version} .*1\.2\.3"):
        Catalog(objects)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"7",
        b"\xff",
        b"{}",
        b'{"schema_version": 2}',
        b'{"schema_version": 2, "tables": []}',
        b'{"schema_version": 2, "tables": {"files": [{"key": 1}]}}',
        b'{"schema_version": 2, "tables": {}, "surprise": 1}',
    ],
)
def test_a_garbled_marker_is_refused(objects, data):
    objects.put(keys.run_marker(RUNS[0]), [data])
    with pytest.raises(CatalogDamagedError, match=f"marker of a run in catalog/runs/{RUNS[0]}"):
        Catalog(objects)


def test_a_missing_part_is_named(objects):
    add_run(objects, RUNS[0], files=[{}])
    objects.delete(keys.part("files", RUNS[0], 0))
    with pytest.raises(CatalogDamagedError, match=r"files/.*part-00000\.parquet"):
        query(objects, "SELECT 1")


def test_a_part_that_cannot_be_read_is_named(objects):
    add_run(objects, RUNS[0], files=[{}])
    key = keys.part("files", RUNS[0], 0)
    objects.put(key, [objects.get(key)[:-1]])
    with pytest.raises(CatalogDamagedError, match=re.escape(key)):
        query(objects, "SELECT * FROM files")


def test_no_flipped_bit_of_a_page_goes_unnoticed(objects):
    """A flip either is told, or changes nothing that is read (statistics in a page header)."""
    add_run(objects, RUNS[0], files=[{"path": f"file-{n}"} for n in range(3)])
    key = keys.part("files", RUNS[0], 0)
    sound, rows = objects.get(key), Catalog(objects).dataset("files").to_table()
    footer = len(sound) - 8 - int.from_bytes(sound[-8:-4], "little")
    told = 0
    for position in range(4, footer, 7):
        damaged = bytearray(sound)
        damaged[position] ^= 1 << position % 8
        Path(objects.uri, key).write_bytes(damaged)
        (part,) = Catalog(objects).parts("files")
        assert part.problem(objects) is not None
        try:
            assert Catalog(objects).dataset("files").to_table() == rows
        except (pa.ArrowException, OSError):
            told += 1
    assert told > 50


def test_an_error_of_a_query_is_not_called_damage(objects):
    add_run(objects, RUNS[0], files=[{}])
    with pytest.raises(duckdb.Error, match="nonsense"):
        query(objects, "SELECT nonsense FROM files")
