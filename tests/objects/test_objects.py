"""What every object store must do; a new kind of store joins the fixture ``objects``."""

import pickle

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from tstore.catalog.parquet import to_bytes
from tstore.catalog.schema import PAIRS
from tstore.errors import (
    InvalidKeyError,
    LocationError,
    ObjectExistsError,
    ObjectNotFoundError,
    RangeError,
    StoreNotFoundError,
)
from tstore.objects import open_objects

INVALID_KEYS = ["", "/a", "../a", "a/../b", "a/..", "./a", "a//b", "a/", "a\0b", "a\\b"]


def keys_of(objects, prefix=""):
    return [info.key for info in objects.list(prefix)]


@pytest.mark.parametrize(
    "parts",
    [[], [b""], [b"abc"], [b"a", bytearray(b"b"), memoryview(b"cd"), np.arange(9, dtype=np.uint8)]],
    ids=["no part", "empty", "one", "all kinds of buffers"],
)
@pytest.mark.parametrize("put", ["put", "put_new"])
def test_what_was_put_is_got(objects, put, parts):
    whole = b"".join(bytes(part) for part in parts)
    getattr(objects, put)("a/b/c", iter(parts))
    assert objects.get("a/b/c") == whole
    assert objects.get_versioned("a/b/c")[0] == whole
    assert objects.get_range("a/b/c", 0, len(whole)) == whole
    info = objects.head("a/b/c")
    assert (info.key, info.nbytes) == ("a/b/c", len(whole))
    assert list(objects.list("")) == [info]
    assert info.version in ("", objects.get_versioned("a/b/c")[1])


def test_put_replaces_and_put_new_does_not(objects):
    objects.put("k", [b"one"])
    objects.put("k", [b"two"])
    with pytest.raises(ObjectExistsError, match="k, found one"):
        objects.put_new("k", [b"three"])
    assert objects.get("k") == b"two"


def test_ranges(objects):
    objects.put("k", [bytes(range(10))])
    for start in range(11):
        for stop in range(start, 11):
            assert objects.get_range("k", start, stop) == bytes(range(start, stop))


@pytest.mark.parametrize(("start", "stop"), [(-1, 3), (0, 11), (10, 11), (11, 11), (4, 3)])
def test_ranges_outside_are_refused(objects, start, stop):
    objects.put("k", [bytes(10)])
    with pytest.raises(RangeError, match="10 bytes of k"):
        objects.get_range("k", start, stop)


READS = {
    "get": lambda objects, key: objects.get(key),
    "get_versioned": lambda objects, key: objects.get_versioned(key),
    "get_range": lambda objects, key: objects.get_range(key, 0, 0),
    "head": lambda objects, key: objects.head(key),
    "put_if_match": lambda objects, key: objects.put_if_match(key, [b"x"], "version"),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
@pytest.mark.parametrize("key", ["missing", "a/missing", "a/b/below-an-object", "a"])
def test_missing_keys(objects, key, read):
    objects.put("a/b", [b"x"])
    with pytest.raises(ObjectNotFoundError, match=f"at {key}, found none"):
        read(objects, key)
    assert keys_of(objects) == ["a/b"]


def test_delete(objects):
    for key in ("a/b", "a/c"):
        objects.put(key, [b"x"])
    for key in ("a/b", "a/b", "missing", "a", "a/c/below-an-object"):
        objects.delete(key)
    assert keys_of(objects) == ["a/c"]


@pytest.mark.parametrize("key", INVALID_KEYS)
def test_invalid_keys_are_refused_by_everything_that_takes_one(objects, key, tmp_path):
    (tmp_path / "a").write_bytes(b"outside")
    writes = {
        "put": lambda objects, key: objects.put(key, [b"x"]),
        "put_new": lambda objects, key: objects.put_new(key, [b"x"]),
        "delete": lambda objects, key: objects.delete(key),
    }
    for use in (*READS.values(), *writes.values()):
        with pytest.raises(InvalidKeyError):
            use(objects, key)
    assert (tmp_path / "a").read_bytes() == b"outside"
    assert keys_of(objects) == []


def test_lists_are_sorted_by_key_and_prefixes_are_plain_text(objects):
    keys = ["a", "a-b/c", "a.b", "b/1", "b/10/x", "b/2", "ba/1", "B/1", "b/é"]
    for number, key in enumerate(keys):
        objects.put(key, [bytes(number)])
    assert [(i.key, i.nbytes) for i in objects.list("")] == sorted(
        (key, number) for number, key in enumerate(keys)
    )
    for prefix in ("", "a", "a-", "b", "b/", "b/1", "b/10/", "b/10/x", "b/10/xy", "c", "c/d/"):
        assert keys_of(objects, prefix) == sorted(key for key in keys if key.startswith(prefix))


@pytest.mark.parametrize("prefix", ["/", "../", "../../", "/etc/", "b/../"])
def test_prefixes_do_not_leave_the_store(objects, prefix, tmp_path):
    (tmp_path / "outside").write_bytes(b"")
    objects.put("b/1", [b"x"])
    assert keys_of(objects, prefix) == []


def test_a_list_may_be_deleted_from_while_it_is_read(objects):
    for number in range(5):
        objects.put(f"k{number}", [b"x"])
    for info in objects.list(""):
        objects.delete(info.key)
    assert keys_of(objects) == []


def test_an_empty_place_lists_nothing_and_is_not_made_by_reading(objects, tmp_path):
    assert keys_of(objects) == keys_of(objects, "a/b") == []
    objects.delete("a")
    objects.remove_abandoned(0)
    assert list(tmp_path.iterdir()) == []


def test_a_probe_leaves_nothing(objects):
    objects.put("k", [b"x"])
    objects.probe()
    assert keys_of(objects) == ["k"]


def test_pyarrow_reads_large_objects_by_ranges(objects, monkeypatch):
    monkeypatch.setattr("tstore.objects.arrow._WHOLE_NBYTES", 0)
    table = pa.table({"a": list(range(20_000)), "b": [str(n % 97) for n in range(20_000)]})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=3_000)
    objects.put("a/t.parquet", [sink.getvalue()])
    files = objects.filesystem()
    assert pq.read_table("a/t.parquet", filesystem=files).equals(table)
    assert ds.dataset("a", filesystem=files).to_table(columns=["b"]).equals(table.select(["b"]))
    with pytest.raises(FileNotFoundError):
        files.open_input_file("a/missing")


def test_pyarrow_reads_the_same_namespace(objects):
    table = PAIRS.empty_table()
    objects.put("catalog/pairs/part-0.parquet", [to_bytes(table)])
    path = "catalog/pairs/part-0.parquet"
    assert pq.read_table(path, filesystem=objects.filesystem()).equals(table)


def test_the_uri_opens_the_same_store(objects):
    objects.put("k", [b"x"])
    assert open_objects(objects.uri).get("k") == b"x"
    assert open_objects(objects.uri).uri == objects.uri


def test_a_store_can_be_sent_to_a_worker(shared_objects):
    shared_objects.put("k", [b"x"])
    sent = pickle.loads(pickle.dumps(shared_objects))
    assert (sent.uri, sent.get("k")) == (shared_objects.uri, b"x")


def test_file_locations(tmp_path):
    open_objects(f"file://{tmp_path}/root").put("k", [b"x"])
    assert open_objects(f"{tmp_path}/root").get("k") == b"x"
    with pytest.raises(StoreNotFoundError, match="scheme 'ftp'"):
        open_objects("ftp://host/root")


@pytest.mark.parametrize(
    "rest", ["", "/", "b", "B/x", "a_b/x", "bucket//x", "bucket/a/../b", "-b/x"]
)
def test_s3_locations_are_checked(rest):
    with pytest.raises(LocationError, match="expected a location like s3://bucket/prefix"):
        open_objects(f"s3://{rest}")


def test_s3_locations(s3):
    for text in ("s3://tests", "s3://tests/", "s3://tests/a/b", "s3://tests/a/b/"):
        assert open_objects(text).uri == text.removesuffix("/")
