"""Sizes are those of real blobs, and are asked of a codec only once."""

import pytest

import tstore_codecs
from benchmarks.planning.sizes import ALONE, Sizes


def encoded(hub, target, base, codec):
    tensor = hub.tensors[target]
    other = None if base is None else hub.tensors[base].read()
    return len(
        tstore_codecs.encode(
            tensor.read(), dtype=tensor.dtype, codec=codec, shape=tensor.shape, base=other
        )
    )


@pytest.mark.parametrize("codec", ["tensorx", "fmpp", "ulprow"])
def test_sizes_are_those_of_the_codec(hub, bench, codec):
    target, base = hub.contents["org/tuned"]["0.weight"], hub.contents["lab/base"]["0.weight"]
    assert bench.sizes.measured([(target, base, codec), (base, None, ALONE)]) == [
        encoded(hub, target, base, codec),
        encoded(hub, base, None, ALONE),
    ]


def test_what_was_measured_is_remembered(hub, tmp_path, monkeypatch):
    names = list(hub.arrivals)[:3]
    asked = [(names[1], names[0], "fmpp"), (names[2], None, ALONE), (names[1], names[0], "fmpp")]
    found = Sizes(hub.tensors, tmp_path).measured(asked)
    assert found[0] == found[2]
    monkeypatch.setattr(tstore_codecs, "encode", None)  # no more encoding
    assert Sizes(hub.tensors, tmp_path).measured(asked) == found


def test_a_delta_larger_than_alone_is_stored_alone(hub, bench):
    related = hub.contents["org/tuned"]["0.weight"], hub.contents["lab/base"]["0.weight"]
    unrelated = hub.contents["other/stranger"]["0.weight"], related[1]
    stored = bench.stored({**dict([related, unrelated]), related[1]: None}, "tensorx")
    alone = bench.sizes.alone(stored)
    deltas = bench.sizes.measured([(*related, "tensorx"), (*unrelated, "tensorx")])
    assert stored[related[0]] == deltas[0] < alone[related[0]]
    assert stored[unrelated[0]] == alone[unrelated[0]] <= deltas[1]
