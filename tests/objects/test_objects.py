"""What every object store must do; a new kind of store joins the fixture."""

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from signal import SIGKILL

import numpy as np
import pyarrow.parquet as pq
import pytest

from tstore.catalog.parquet import to_bytes
from tstore.catalog.schema import PAIRS
from tstore.errors import (
    InvalidKeyError,
    ObjectExistsError,
    ObjectNotFoundError,
    PreconditionFailedError,
    RangeError,
    StoreNotFoundError,
)
from tstore.objects import ObjectInfo, open_objects
from tstore.settings import KIB

INVALID_KEYS = ["", "/a", "../a", "a/../b", "a/..", "./a", "a//b", "a/", "a\0b", "a\\b"]


@pytest.fixture(params=["local"])
def objects(request, tmp_path):
    """An empty store of each kind."""
    return open_objects({"local": str(tmp_path / "root")}[request.param])


def keys_of(objects, prefix=""):
    return [info.key for info in objects.list(prefix)]


# --- one writer -------------------------------------------------------------------------------


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
    assert objects.head("a/b/c") == ObjectInfo("a/b/c", len(whole))
    assert list(objects.list("")) == [ObjectInfo("a/b/c", len(whole))]


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
    assert not (tmp_path / "root").exists()


def test_pyarrow_reads_the_same_namespace(objects):
    table = PAIRS.empty_table()
    objects.put("catalog/pairs/part-0.parquet", [to_bytes(table)])
    path = "catalog/pairs/part-0.parquet"
    assert pq.read_table(path, filesystem=objects.filesystem()).equals(table)


def test_the_uri_opens_the_same_store(objects):
    objects.put("k", [b"x"])
    assert open_objects(objects.uri).get("k") == b"x"


def test_file_locations(tmp_path):
    open_objects(f"file://{tmp_path}/root").put("k", [b"x"])
    assert open_objects(f"{tmp_path}/root").get("k") == b"x"
    with pytest.raises(StoreNotFoundError, match="scheme 'ftp'"):
        open_objects("ftp://host/root")


# --- several writers --------------------------------------------------------------------------


def in_threads(count, function):
    """Results of ``function(number)`` in so many threads that start together."""
    barrier = threading.Barrier(count)

    def run(number):
        barrier.wait()
        return function(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


def test_one_of_eight_creators_wins(objects):
    def create(number):
        try:
            objects.put_new("runs/x", [bytes([number]) * 100])
        except ObjectExistsError:
            return None
        return number

    for _ in range(5):
        winners = [number for number in in_threads(8, create) if number is not None]
        assert len(winners) == 1
        assert objects.get("runs/x") == bytes(winners) * 100
        objects.delete("runs/x")
    assert keys_of(objects) == []


CREATE = """
import sys
from tstore.errors import ObjectExistsError
from tstore.objects import open_objects
print("ready", flush=True)
sys.stdin.readline()
try:
    open_objects(sys.argv[1]).put_new("runs/x", [sys.argv[2].encode()])
except ObjectExistsError:
    sys.exit(3)
"""


def test_one_of_several_processes_wins(objects):
    command = [sys.executable, "-c", CREATE, objects.uri]
    pipe = subprocess.PIPE
    racers = [
        subprocess.Popen([*command, str(number)], stdin=pipe, stdout=pipe) for number in range(3)
    ]
    for racer in racers:
        assert racer.stdout.readline() == b"ready\n"
    for racer in racers:
        racer.stdin.write(b"go\n")
        racer.stdin.flush()
    for racer in racers:
        racer.communicate()
    codes = [racer.returncode for racer in racers]
    assert sorted(codes) == [0, 3, 3]
    assert objects.get("runs/x") == str(codes.index(0)).encode()


def test_put_if_match_takes_only_the_version_that_was_read(objects):
    objects.put("k", [b"1"])
    _, first = objects.get_versioned("k")
    second = objects.put_if_match("k", [b"2"], first)
    assert objects.get_versioned("k") == (b"2", second)
    with pytest.raises(PreconditionFailedError, match="read it again"):
        objects.put_if_match("k", [b"3"], first)
    assert objects.get("k") == b"2"
    objects.put_if_match("k", [b"3"], second)
    assert objects.get("k") == b"3"


def test_no_increment_is_lost(objects):
    objects.put("n", [b"0"])

    def increment(_):
        for _ in range(8):
            while True:
                data, version = objects.get_versioned("n")
                try:
                    objects.put_if_match("n", [str(int(data) + 1).encode()], version)
                    break
                except PreconditionFailedError:
                    continue

    in_threads(6, increment)
    assert objects.get("n") == b"48"
    assert keys_of(objects) == ["n"]


def test_readers_never_see_half_an_object(objects):
    nbytes = 256 * KIB
    objects.put("k", [bytes(nbytes)])
    written = threading.Event()

    def write():
        try:
            for number in range(1, 21):
                objects.put("k", [bytes([number]) * (nbytes // 4)] * 4)
        finally:
            written.set()

    def read():
        seen = set()
        while True:
            last = written.is_set()
            data = objects.get("k")
            assert len(data) == nbytes
            assert data.count(data[:1]) == nbytes
            assert keys_of(objects) == ["k"]
            seen.add(data[0])
            if last:
                return seen

    _, seen = in_threads(2, lambda number: (write, read)[number]())
    assert 20 in seen


# --- writers that fail ------------------------------------------------------------------------


@pytest.mark.parametrize("put", ["put", "put_new"])
def test_a_writer_that_raises_leaves_nothing(objects, put):
    def parts():
        yield bytes(100)
        raise OSError("disk on fire")

    with pytest.raises(OSError, match="disk on fire"):
        getattr(objects, put)("a/k", parts())
    assert keys_of(objects) == []
    objects.put_new("a/k", [b"x"])
    with pytest.raises(OSError, match="disk on fire"):
        objects.put("a/k", parts())
    assert objects.get("a/k") == b"x"


DIE_HALFWAY = """
import os, signal, sys
from tstore.objects import open_objects
def parts():
    yield bytes(1 << 20)
    os.kill(os.getpid(), signal.SIGKILL)
getattr(open_objects(sys.argv[1]), sys.argv[2])(sys.argv[3], parts())
"""


@pytest.mark.parametrize(("put", "key"), [("put", "old"), ("put_new", "new")])
def test_a_killed_writer_leaves_no_partial_object(objects, put, key, tmp_path):
    objects.put("old", [b"x"])
    command = [sys.executable, "-c", DIE_HALFWAY, objects.uri, put, key]
    assert subprocess.run(command, check=False).returncode == -SIGKILL
    assert list(objects.list("")) == [ObjectInfo("old", 1)]
    assert objects.get("old") == b"x"
    objects.put(key, [b"again"])
    assert objects.get(key) == b"again"


def test_what_killed_writers_left_is_removed_once_it_is_old(objects, tmp_path):
    command = [sys.executable, "-c", DIE_HALFWAY, objects.uri, "put", "k"]
    subprocess.run(command, check=False)
    objects.put("kept", [b"x"])

    def files():
        return {name for _, _, names in os.walk(tmp_path) for name in names}

    assert len(files()) == 2
    objects.remove_abandoned(3600)
    assert len(files()) == 2, "its writer may still be at work"
    objects.remove_abandoned(-1)
    assert files() == {"kept"}
