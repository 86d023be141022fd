"""The writer lease: one at a time, and no dead holder blocks the next one for long."""

import json
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from unittest import mock

import pytest

from support.faulty_proxy import Fault, faulty_proxy
from support.inline import ingest_inline
from tstore.catalog import keys, lease, open_store
from tstore.catalog.catalog import commit
from tstore.catalog.runs import RunMarker, read_markers
from tstore.errors import (
    CatalogDamagedError,
    LeaseHeldError,
    LeaseLostError,
    ObjectStoreUnavailableError,
    StoreNotWritableError,
)
from tstore.objects import open_objects
from tstore.settings import LEASE_TTL_S


def unexpected(line):
    raise AssertionError(f"expected no wait, found: {line}")


def hold(objects, purpose="test", *, wait_s=0.0, on_wait=unexpected):
    return lease.hold(objects, purpose, wait_s=wait_s, on_wait=on_wait)


def later(seconds):
    """The wall clock, moved on."""
    now = time.time() + seconds
    return mock.patch.object(lease.time, "time", return_value=now)


@pytest.fixture(params=["local", "s3"])
def store_uri(request, tmp_path):
    """An empty place for a store of each kind."""
    return (
        str(tmp_path / "store") if request.param == "local" else request.getfixturevalue("s3").uri()
    )


@pytest.fixture
def objects(store_uri):
    return open_objects(store_uri)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(lease, "_POLL_S", 0.0)


def content(objects):
    return json.loads(objects.get(keys.WRITER_LEASE))


def test_one_after_the_other(objects):
    for purpose in ("first", "second"):
        with hold(objects, purpose) as held:
            held.check()
            assert content(objects)["purpose"] == purpose
        assert content(objects)["expires_at"] == 0


def test_a_check_renews(objects):
    with hold(objects) as held:
        first = content(objects)["expires_at"]
        with later(30):
            held.check()
        assert content(objects)["expires_at"] >= first + 29
        held.check()


def test_the_lease_renews_itself(objects, monkeypatch):
    check, third = lease.WriterLease.check, threading.Event()
    expiries = []

    def watched(self):
        check(self)
        expiries.append(content(objects)["expires_at"])
        if len(expiries) == 3:
            third.set()

    monkeypatch.setattr(lease, "LEASE_RENEW_S", 0.0)
    monkeypatch.setattr(lease.WriterLease, "check", watched)
    with hold(objects):
        assert third.wait(30)
    assert expiries[0] < expiries[1] < expiries[2]


def test_a_held_lease_is_refused_with_the_name_of_its_holder(objects):
    lines = []
    with (
        hold(objects, "ingest of /hub"),
        pytest.raises(LeaseHeldError, match=r"held by ingest of /hub \(process \d+ on ") as refusal,
        hold(objects, "other", on_wait=lines.append),
    ):
        pass
    assert lines == [], "nothing to wait for"
    assert content(objects)["host"] in str(refusal.value)


def test_the_second_waits_until_the_first_is_done(objects):
    lines = []
    with ExitStack() as stack:
        stack.enter_context(hold(objects, "ingest of /hub"))

        def on_wait(line):
            lines.append(line)
            stack.close()  # the first finishes

        with hold(objects, "second", wait_s=60, on_wait=on_wait) as held:
            held.check()
            assert content(objects)["purpose"] == "second"
    assert len(lines) == 1
    assert lines[0].startswith("waiting for ingest of /hub (process ")


HOLD_FOREVER = """
import sys
from tstore.catalog import lease
from tstore.objects import open_objects
with lease.hold(open_objects(sys.argv[1]), "doomed", wait_s=0, on_wait=print):
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_the_lease_of_a_killed_process_is_taken_over_at_once(objects):
    command = [sys.executable, "-c", HOLD_FOREVER, objects.uri]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as holder:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(LeaseHeldError, match=f"doomed .process {holder.pid} on"), hold(objects):
            pass
        holder.kill()
        holder.wait()
        assert content(objects)["expires_at"] > time.time(), "it has not expired"
        with hold(objects, "heir") as held:
            held.check()


def test_a_killed_process_that_nobody_waited_for_is_dead_too(objects):
    command = [sys.executable, "-c", HOLD_FOREVER, objects.uri]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as holder:
        holder.stdout.readline()
        holder.kill()
        holder.stdout.read()  # to its end: the process is gone, but still in the process table
        with hold(objects, wait_s=10, on_wait=lambda line: None):
            pass


@pytest.mark.parametrize("change", [{"machine": "elsewhere"}, {"pid": 2**30}], ids=str)
def test_only_a_process_of_this_machine_can_be_known_dead(objects, change):
    with hold(objects):
        holder = {**content(objects), **change}
    objects.put(keys.WRITER_LEASE, [json.dumps({**holder, "expires_at": time.time() + 9}).encode()])
    if "pid" in change:
        with hold(objects):
            pass
        return
    with pytest.raises(LeaseHeldError), hold(objects):
        pass


def test_a_reused_process_id_is_not_the_holder(objects):
    with hold(objects):
        holder = {**content(objects), "started": "1", "expires_at": time.time() + 9}
    objects.put(keys.WRITER_LEASE, [json.dumps(holder).encode()])
    with hold(objects):
        pass


def test_an_expired_lease_is_taken_over_and_its_holder_notices(objects):
    with hold(objects, "slow") as slow:
        with later(LEASE_TTL_S - 5), pytest.raises(LeaseHeldError), hold(objects):
            pass
        with later(LEASE_TTL_S + 5), hold(objects, "fast") as fast:
            fast.check()
            for _ in range(2):
                with pytest.raises(LeaseLostError, match="nothing was committed"):
                    slow.check()
            fast.check()
            taken = objects.get(keys.WRITER_LEASE)
    assert json.loads(taken)["purpose"] == "fast"
    assert content(objects)["purpose"] == "fast", "a lost lease is not given back"


RUN = "20260101T000000.000000Z-abcd"


def marker(run_id=RUN):
    return RunMarker(run_id, "ingest", "1", {}, {}, {})


@pytest.mark.parametrize("lost", [True, False])
def test_what_fails_after_the_lease_was_lost_fails_because_of_that(objects, lost):
    """Whoever took the lease removed what the job had staged, say."""
    expected = (
        pytest.raises(LeaseLostError, match="run the job again")
        if lost
        else pytest.raises(CatalogDamagedError)
    )
    with expected as failure, hold(objects):
        if lost:
            with later(LEASE_TTL_S + 1), hold(objects, "taken over"):
                pass
        raise CatalogDamagedError("expected the Parquet object x, found none", key="x")
    assert not lost or isinstance(failure.value.__cause__, CatalogDamagedError)


def test_a_holder_that_stalled_before_its_commit_is_barred(objects):
    with hold(objects, "slow") as slow:
        slow.announce(RUN)
        with later(LEASE_TTL_S + 5), hold(objects, "fast"):
            assert read_markers(objects) == ()
            with pytest.raises(LeaseLostError, match="barred"):
                commit(objects, marker())
        assert read_markers(objects) == ()


def test_a_committed_run_is_not_barred(objects):
    with hold(objects, "slow") as slow:
        slow.announce(RUN)
        commit(objects, marker())
        with later(LEASE_TTL_S + 5), hold(objects, "fast"):
            assert [run.run_id for run in read_markers(objects)] == [RUN]
    with hold(objects, "next"):
        assert [run.run_id for run in read_markers(objects)] == [RUN]


def test_whoever_dies_before_the_bar_leaves_it_to_the_next(objects, monkeypatch):
    with hold(objects, "slow") as slow:
        slow.announce(RUN)
        with monkeypatch.context() as patch, later(LEASE_TTL_S + 5):
            patch.setattr(lease, "bar_run", mock.Mock(side_effect=KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt), hold(objects, "dies"):
                pass
        with later(2 * LEASE_TTL_S + 10), hold(objects, "third"):
            pass
        with pytest.raises(LeaseLostError):
            commit(objects, marker())


def interrupt_after(objects, name):
    """The next call of this method takes effect, and Ctrl-C comes before it returns."""
    call = getattr(objects, name)

    def interrupted(*args):
        setattr(objects, name, call)
        call(*args)
        raise KeyboardInterrupt

    setattr(objects, name, interrupted)


@pytest.mark.parametrize("name", ["put_new", "get_versioned"])
def test_an_interrupt_when_the_lease_was_just_taken_gives_it_back(objects, name):
    interrupt_after(objects, name)
    with pytest.raises(KeyboardInterrupt), hold(objects, "interrupted"):
        pass
    assert content(objects)["purpose"] == "interrupted", "it was taken"
    assert content(objects)["expires_at"] == 0


def test_an_interrupt_when_the_lease_was_just_taken_over_gives_it_back(objects):
    """And leaves to the next what the holder before had announced."""
    with hold(objects, "slow") as slow:
        slow.announce(RUN)
        with later(LEASE_TTL_S + 5):
            interrupt_after(objects, "put_if_match")
            with pytest.raises(KeyboardInterrupt), hold(objects, "interrupted"):
                pass
            assert content(objects)["purpose"] == "interrupted", "it was taken"
            with hold(objects, "next"), pytest.raises(LeaseLostError, match="barred"):
                commit(objects, marker())


def test_an_interrupt_during_the_wait_leaves_the_lease_to_its_holder(objects):
    def interrupt(line):
        raise KeyboardInterrupt

    with hold(objects, "holder") as held:
        with pytest.raises(KeyboardInterrupt), hold(objects, wait_s=60, on_wait=interrupt):
            pass
        held.check()
        assert content(objects)["purpose"] == "holder"
        assert content(objects)["expires_at"] > time.time()


def test_an_announcement_without_the_lease_is_refused(objects):
    with hold(objects, "slow") as slow:
        with later(LEASE_TTL_S + 5), hold(objects, "fast"):
            pass
        with pytest.raises(LeaseLostError):
            slow.announce(RUN)


@pytest.mark.parametrize("error", [ObjectStoreUnavailableError, StoreNotWritableError])
def test_a_renewal_that_fails_once_is_tried_again(tmp_path, monkeypatch, error):
    monkeypatch.setattr(lease, "LEASE_RENEW_S", 0.02)
    objects = open_objects(str(tmp_path))
    put, calls, renewed = objects.put_if_match, [], threading.Event()

    def away(*args):
        calls.append(1)
        if len(calls) == 1:
            raise error("not now")
        renewed.set()
        return put(*args)

    with hold(objects):
        objects.put_if_match = away
        assert renewed.wait(30)


def test_a_lease_that_cannot_be_given_back_does_not_hide_the_reason(tmp_path):
    objects = open_objects(str(tmp_path))
    objects.put_if_match = mock.Mock(side_effect=StoreNotWritableError("no space"))
    with pytest.raises(ZeroDivisionError), hold(objects):
        raise ZeroDivisionError
    assert objects.put_if_match.called


def test_a_job_that_lost_its_lease_commits_nothing(small_hub, store_uri, objects):
    def steal(stage, number):
        if stage == "encode":
            objects.put(keys.WRITER_LEASE, [json.dumps({"purpose": "thief"}).encode()])

    with pytest.raises(LeaseLostError):
        ingest_inline(small_hub, store_uri, before_shard=steal)
    assert open_store(store_uri).catalog().runs == ()
    assert content(objects) == {"purpose": "thief"}


def test_a_lost_answer_does_not_cost_the_lease(s3, monkeypatch):
    with faulty_proxy(s3.endpoint) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        objects = open_objects(s3.uri())
        proxy.once(Fault.LOST, "PUT")  # that makes the lease
        with hold(objects) as held:
            proxy.once(Fault.LOST, "PUT")  # that renews it
            held.check()
            held.check()
            proxy.once(Fault.LOST, "PUT")  # that gives it back
        assert content(objects)["expires_at"] == 0
        assert (proxy.fired[Fault.LOST], proxy.planned) == (3, 0)
