"""Cutting a plan into shards."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tstore.encode import shards as shards_module
from tstore.encode.shards import EncodeItem, EncodeSetup, plan_shards
from tstore.hub.location import HubLocation, HubTensor
from tstore.hub.reader import SourceFile
from tstore.settings import TaskSettings

TASKS = TaskSettings(encode_nbytes=100)
SETUP = EncodeSetup("/s", "zipnn", 0)


def tensor(name, nbytes=10):
    source = SourceFile(f"/hub/{name}", nbytes, "tag")
    return HubTensor(name, f"sha-{name}", HubLocation(source, 0, nbytes))


def alone(name, nbytes=10):
    return EncodeItem(tensor(name, nbytes), "BF16", "zipnn")


def delta(name, base, nbytes=10):
    return EncodeItem(tensor(name, nbytes), "BF16", "tensorx", tensor(base, nbytes))


def names(shards):
    return [[item.target.tensor_id for item in shard.items] for shard in shards]


sizes = st.lists(st.integers(1, 150), max_size=30)


@given(sizes=sizes, cluster=st.integers(1, 4))
def test_shards_hold_every_item_once_within_their_budget(sizes, cluster):
    items = [
        alone(f"t{n}", size) if n % cluster == 0 else delta(f"t{n}", f"t{n - n % cluster}", size)
        for n, size in enumerate(sizes)
    ]
    shards = list(plan_shards(items, SETUP, TASKS))
    assert [name for group in names(shards) for name in group] == [
        f"t{n}" for n in range(len(items))
    ]
    for shard in shards:
        assert shard.nbytes == sum(item.nbytes for item in shard.items)
        assert shard.nbytes <= TASKS.encode_nbytes or len(shard.items) == 1
        assert shard.memory_nbytes >= 4 * max(item.nbytes for item in shard.items)
    assert shards == list(plan_shards(items, SETUP, TASKS))
    assert len({shard.key for shard in shards}) == len(shards)
    for one, two in pairwise(shards):
        assert one.nbytes + two.items[0].nbytes > TASKS.encode_nbytes, "no shard ends early"


def test_the_number_of_items_is_bounded_as_the_header_of_a_pack_is(monkeypatch):
    monkeypatch.setattr(shards_module, "MAX_ITEMS", 3)
    groups = names(plan_shards([alone(f"t{n}", 1) for n in range(8)], SETUP, TASKS))
    assert [len(group) for group in groups] == [3, 3, 2]


def test_no_items_no_shards():
    assert list(plan_shards([], SETUP, TASKS)) == []


def test_items_are_taken_as_shards_are_asked_for():
    taken = []

    def items():
        for n in range(100):
            taken.append(n)
            yield alone(f"t{n}", 50)

    shards = plan_shards(items(), SETUP, TASKS)
    assert names([next(shards)]) == [["t0", "t1"]]
    assert len(taken) == 3


@given(count=st.integers(1, 9))
def test_halves_hold_every_item_once_and_have_keys_of_their_own(count):
    (whole,) = plan_shards([alone(f"t{n}", 10) for n in range(count)], SETUP, TASKS)
    halves = whole.halves()
    if count == 1:
        assert halves == ()
        return
    assert [name for half in names(halves) for name in half] == names([whole])[0]
    assert sum(half.nbytes for half in halves) == whole.nbytes
    assert len({whole.key, *(half.key for half in halves)}) == 3


BASE = delta("a1", "a")
LOCATION = BASE.target.location


@pytest.mark.parametrize(
    "other",
    [
        replace(BASE, codec="bitx"),
        replace(BASE, base=None),
        replace(BASE, base=tensor("b")),
        replace(BASE, target=replace(BASE.target, tensor_id="a2")),
        replace(
            BASE,
            target=replace(
                BASE.target,
                location=replace(LOCATION, source=replace(LOCATION.source, tag="newer")),
            ),
        ),
    ],
    ids=["codec", "no base", "base", "tensor", "source changed"],
)
def test_what_decides_the_result_decides_the_key(other):
    (one,), (two,) = (plan_shards([item], SETUP, TASKS) for item in (BASE, other))
    assert one.key != two.key


def test_the_standalone_codec_and_the_generation_decide_the_key():
    setups = SETUP, replace(SETUP, standalone_codec="zstd"), replace(SETUP, generation="run")
    assert len({next(plan_shards([BASE], setup, TASKS)).key for setup in setups}) == 3
