"""Savings rows add up to what was taken in and to what was stored."""

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from support.stores import committed_rows
from tstore.catalog.savings import summarise
from tstore.catalog.schema import BLOBS, FILES, PLANS, SAVINGS


def total(rows, column):
    return pc.sum(rows[column]).as_py()


def test_they_sum_up_to_files_and_blobs(small_store):
    rows = committed_rows(small_store)
    savings, files, blobs = rows["savings"], rows["files"], rows["blobs"]
    assert total(savings, "bytes_in") == total(files, "nbytes")
    assert total(savings, "bytes_after_dedup") == total(blobs, "raw_nbytes")
    assert total(savings, "bytes_stored") == total(blobs, "nbytes")
    assert total(savings, "n_extents") == pc.sum(pc.list_value_length(files["layout"])).as_py()
    for repo in set(files["repo"].to_pylist()):
        of_repo = pc.equal(savings["repo"], repo)
        expected = total(files.filter(pc.equal(files["repo"], repo)), "nbytes")
        assert total(savings.filter(of_repo), "bytes_in") == expected


def test_roles_are_those_of_the_blobs(small_store):
    rows = committed_rows(small_store)
    blobs = rows["blobs"].to_pylist()
    bases = {blob["base_id"] for blob in blobs if blob["base_id"]}
    expected = {
        "delta": [b for b in blobs if b["base_id"]],
        "base": [b for b in blobs if b["tensor_id"] in bases],
        "opaque": [b for b in blobs if b["dtype"] == "OPAQUE"],
    }
    expected["alone"] = [b for b in blobs if not any(b in group for group in expected.values())]
    assert all(expected.values())
    savings = rows["savings"]
    for role, group in expected.items():
        mine = savings.filter(pc.equal(savings["role"], role))
        assert total(mine, "bytes_stored") == sum(blob["nbytes"] for blob in group)
        assert total(mine, "bytes_in") == sum(blob["raw_nbytes"] for blob in group)
        assert set(mine["codec"].to_pylist()) == {blob["codec"] for blob in group}
    duplicates = savings.filter(pc.equal(savings["role"], "duplicate"))
    assert total(duplicates, "bytes_stored") == total(duplicates, "bytes_predicted") == 0
    assert set(duplicates["codec"].to_pylist()) == {"none"}
    (copied,) = set(duplicates.filter(pc.equal(duplicates["dtype"], "BF16"))["repo"].to_pylist())
    assert copied == "mirror/base-again", "the first occurrence pays"


def savings_of(files):
    """Savings of a run of these files that stored nothing."""
    tables = {"taken_files": files, "run_plans": PLANS, "run_blobs": BLOBS}
    with duckdb.connect() as connection:
        for name, rows in tables.items():
            connection.register(name, rows if isinstance(rows, pa.Table) else rows.empty_table())
        return summarise(connection)


def test_a_run_that_stores_nothing_new_has_only_duplicates(small_store):
    files = committed_rows(small_store)["files"]
    savings = savings_of(files)
    assert set(savings["role"].to_pylist()) == {"duplicate"}
    assert total(savings, "bytes_in") == total(files, "nbytes")
    assert total(savings, "bytes_stored") == total(savings, "bytes_after_dedup") == 0


def test_no_files_give_no_rows():
    savings = savings_of(FILES.empty_table())
    assert savings == SAVINGS.empty_table()
