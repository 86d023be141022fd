"""What the codecs are meant to reach, and whether they do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from benchmarks.measure import Result
from benchmarks.peers import XOR_PLANES, ZIPNN

Races = Mapping[str, Mapping[str, Result]]
"""By kind of data, then by contestant: on one large tensor."""

Sizes = Mapping[str, Mapping[str, Mapping[str, float]]]
"""By kind of data, then by repository, then by contestant: bytes, each tensor coded by itself."""


@dataclass(frozen=True)
class Check:
    """One number that was asked for; `peer` is what it is a quotient to, if anything."""

    codec: str
    data: str
    what: str
    peer: str
    found: float
    limit: float
    at_least: bool

    @property
    def holds(self) -> bool:
        """Return whether the number is on the right side of its limit."""
        return self.found >= self.limit if self.at_least else self.found <= self.limit


@dataclass(frozen=True)
class Target:
    """What a codec may take of the size of `rival`, and the speeds it must have.

    Speeds are in `unit`: quotients to those of `rival`, or MB/s.
    """

    codec: str
    data: str
    rival: str
    size: float
    encode: float
    decode: float
    unit: str = "×"


FMPP_BOUND, ULPACK_BOUND = "bound of fmpp", "bound of ulpack"

TARGETS: Final = (
    Target("zipnn", "bf16 alone", ZIPNN, 1.0, 1.5, 1.3),
    Target("zipnn", "f32 alone", ZIPNN, 1.0, 1.5, 1.0),
    Target("tensorx", "bf16 delta", XOR_PLANES, 0.90, 2.5, 1.5),
    Target("fmpp", "bf16 delta", FMPP_BOUND, 1.01, 400, 700, "MB/s"),
    Target("fmpp", "f32 delta", FMPP_BOUND, 1.01, 400, 700, "MB/s"),
    Target("ulpack", "bf16 delta", ULPACK_BOUND, 1.005, 400, 800, "MB/s"),
    Target("ulpack", "f32 delta", ULPACK_BOUND, 1.005, 400, 800, "MB/s"),
    Target("ulprow", "bf16 delta", "tstore ulpack", 0.96, 350, 700, "MB/s"),
)

ROW_LOSS: Final = 1.001
"""Of the size of `ulpack`, what `ulprow` may take of any one fine-tune."""


def checks(races: Races, sizes: Sizes) -> Iterator[Check]:
    """Yield every check that the measurements allow: a peer may be missing."""
    for target in TARGETS:
        race = races.get(target.data, {})
        ours, rival = race.get(f"tstore {target.codec}"), race.get(target.rival)
        if ours is None or rival is None:
            continue
        tensor_size = ours.nbytes / rival.nbytes
        blobs_size = _quotient(sizes[target.data].values(), target.codec, target.rival)
        encode, decode = ours.encode_mb_s, ours.decode_mb_s
        if target.unit == "×":
            encode, decode = encode / rival.encode_mb_s, decode / rival.decode_mb_s
        yield _size(target, "size, one tensor", tensor_size)
        yield _size(target, "size, all tensors", blobs_size)
        yield _speed(target, "encode", encode, target.encode)
        yield _speed(target, "decode", decode, target.decode)
    worst = [_quotient([row], "ulprow", "tstore ulpack") for row in sizes["bf16 delta"].values()]
    yield Check(
        "ulprow", "bf16 delta", "size, worst repository", "tstore ulpack",
        max(worst), ROW_LOSS, at_least=False,
    )  # fmt: skip


def _quotient(rows: Iterable[Mapping[str, float]], codec: str, rival: str) -> float:
    """Return what `codec` takes of all `rows` together, as a share of what `rival` takes."""
    rows = list(rows)
    return sum(row[f"tstore {codec}"] for row in rows) / sum(row[rival] for row in rows)


def _size(target: Target, what: str, found: float) -> Check:
    return Check(target.codec, target.data, what, target.rival, found, target.size, at_least=False)


def _speed(target: Target, what: str, found: float, limit: float) -> Check:
    relative = target.unit == "×"
    peer = target.rival if relative else ""
    what = what if relative else f"{what}, MB/s"
    return Check(target.codec, target.data, what, peer, found, limit, at_least=True)
