"""Several writers at once, and writers that fail."""

import subprocess
import sys
import threading
from signal import SIGKILL

import pytest

from support.races import in_threads
from tstore.errors import ObjectExistsError, PreconditionFailedError
from tstore.settings import KIB


def keys_of(objects):
    return [info.key for info in objects.list("")]


def test_one_of_several_creators_wins(objects):
    def create(number):
        try:
            objects.put_new("runs/x", [bytes([number]) * 100])
        except ObjectExistsError:
            return None
        return number

    for _ in range(3):
        winners = [number for number in in_threads(5, create) if number is not None]
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


def test_one_of_two_processes_wins(shared_objects):
    command = [sys.executable, "-c", CREATE, shared_objects.uri]
    pipe = subprocess.PIPE
    racers = [
        subprocess.Popen([*command, str(number)], stdin=pipe, stdout=pipe) for number in range(2)
    ]
    for racer in racers:
        assert racer.stdout.readline() == b"ready\n"
    for racer in racers:
        racer.stdin.write(b"go\n")
        racer.stdin.flush()
    for racer in racers:
        racer.communicate()
    codes = [racer.returncode for racer in racers]
    assert sorted(codes) == [0, 3]
    assert shared_objects.get("runs/x") == str(codes.index(0)).encode()


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


def test_every_addition_is_made_once(objects):
    objects.put("n", [b""])

    def add(number):
        for letter in "abcd":
            line = f"{number}{letter}"
            while True:
                data, version = objects.get_versioned("n")
                lines = data.decode().split()
                if line in lines:  # made, but the answer was lost and others went on
                    break
                try:
                    objects.put_if_match("n", [" ".join([*lines, line]).encode()], version)
                    break
                except PreconditionFailedError:
                    continue

    in_threads(3, add)
    assert sorted(objects.get("n").decode().split()) == [
        f"{n}{x}" for n in range(3) for x in "abcd"
    ]
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
def test_a_killed_writer_leaves_no_partial_object(shared_objects, put, key):
    shared_objects.put("old", [b"x"])
    command = [sys.executable, "-c", DIE_HALFWAY, shared_objects.uri, put, key]
    assert subprocess.run(command, check=False).returncode == -SIGKILL
    assert keys_of(shared_objects) == ["old"]
    assert shared_objects.get("old") == b"x"
    shared_objects.put(key, [b"again"])
    assert shared_objects.get(key) == b"again"
