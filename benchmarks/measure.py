"""Speeds of several contestants on one tensor, and their sizes on many."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.contestants import Contestant, check, ours, stored_nbytes
from benchmarks.data import Tensor


@dataclass
class Result:
    """What one contestant did with one tensor.

    Attributes
    ----------
    encode_s, decode_s
        Seconds of the best round, of processor time: on a busy machine those of the clock tell
        more about the others.
    encode_wall_s, decode_wall_s
        The same, of the clock.
    """

    raw_nbytes: int
    nbytes: float = 0
    encode_s: float = float("inf")
    decode_s: float = float("inf")
    encode_wall_s: float = float("inf")
    decode_wall_s: float = float("inf")

    @property
    def timed(self) -> bool:
        """Return whether there were rounds: a bound has none."""
        return self.encode_s < float("inf")

    @property
    def ratio(self) -> float:
        """Return stored / raw."""
        return self.nbytes / self.raw_nbytes

    @property
    def encode_mb_s(self) -> float:
        """Return megabytes of raw bytes encoded per second of one processor."""
        return self.raw_nbytes / self.encode_s / 1e6

    @property
    def decode_mb_s(self) -> float:
        """Return megabytes of raw bytes decoded per second of one processor."""
        return self.raw_nbytes / self.decode_s / 1e6

    def quantities(self) -> dict[str, float]:
        """Return all there is to tell, by name."""
        if not self.timed:
            return {"ratio": self.ratio}
        megabytes = self.raw_nbytes / 1e6
        return {
            "ratio": self.ratio,
            "encode_mb_s": self.encode_mb_s,
            "decode_mb_s": self.decode_mb_s,
            "encode_wall_mb_s": megabytes / self.encode_wall_s,
            "decode_wall_mb_s": megabytes / self.decode_wall_s,
        }


def race(contestants: Sequence[Contestant], tensor: Tensor, rounds: int) -> dict[str, Result]:
    """Return results by name: everyone once per round, every other round in reverse.

    A machine that slows down for a while thus slows down everyone. A round before the first one
    compiles and fills caches, and checks that all are lossless.
    """
    results = {contestant.name: Result(tensor.nbytes) for contestant in contestants}
    for contestant in contestants:
        coded = contestant.encode(tensor, contestant.prepare(tensor))
        check(contestant, tensor, contestant.decode(coded, tensor))
        results[contestant.name].nbytes = stored_nbytes(coded)
    for turn in range(rounds):
        for contestant in contestants[:: -1 if turn % 2 else 1]:
            result, prepared = results[contestant.name], contestant.prepare(tensor)
            coded, cpu, wall = _timed(contestant.encode, tensor, prepared)
            result.encode_s = min(result.encode_s, cpu)
            result.encode_wall_s = min(result.encode_wall_s, wall)
            decoded, cpu, wall = _timed(contestant.decode, coded, tensor)
            result.decode_s = min(result.decode_s, cpu)
            result.decode_wall_s = min(result.decode_wall_s, wall)
            del prepared, coded, decoded
    return results


def race_threads(codec: str, tensor: Tensor, rounds: int) -> dict[str, float]:
    """Return by how much two threads are faster than one by the clock, in the same rounds."""
    one, two = race([ours(codec), ours(codec, threads=2)], tensor, rounds).values()
    return {
        "encode": one.encode_wall_s / two.encode_wall_s,
        "decode": one.decode_wall_s / two.decode_wall_s,
    }


def stored(contestant: Contestant, tensors: Sequence[Tensor]) -> int:
    """Return the bytes of all `tensors`, each coded by itself."""
    total = 0
    for tensor in tensors:
        total += stored_nbytes(contestant.encode(tensor, contestant.prepare(tensor)))
    return total


def _timed(function: Callable[..., Any], *arguments: Any) -> tuple[Any, float, float]:
    """Return the result, and seconds of processor time (of all threads) and of the clock."""
    cpu, wall = time.process_time(), time.perf_counter()
    value = function(*arguments)
    return value, time.process_time() - cpu, time.perf_counter() - wall
