"""``python -m benchmarks``: see README.md."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks import bounds, processes
from benchmarks.contestants import Contestant, ours
from benchmarks.data import Pair, Tensor, flat, read_pair
from benchmarks.fp8 import quantised
from benchmarks.generated import generated_pairs
from benchmarks.measure import Result, race, race_threads, stored
from benchmarks.peers import peers
from benchmarks.report import Report, cpu_name
from benchmarks.targets import FMPP_BOUND, ULPACK_BOUND, checks

ALONE = ("zipnn",)
DELTA = ("tensorx", "fmpp", "ulpack", "ulprow", "bitx")
LABELS = {"BF16": "bf16", "F32": "f32", "F8_E4M3": "fp8"}
BOUNDS = {FMPP_BOUND: bounds.fmpp_bound, ULPACK_BOUND: bounds.ulpack_bound}

FIRST_CALLS = ("zipnn", "ulprow")
"""The codec with the least to compile and the one with the most."""

Sizes = dict[str, dict[str, dict[str, float]]]


def main() -> None:
    """Measure, print, write the CSV."""
    arguments = _arguments()
    pairs = generated_pairs()
    if arguments.hub is not None:
        pairs = [read_pair(arguments.hub, *names) for names in arguments.pairs]
    by_kind = {label: [p for p in pairs if LABELS[p.dtype] == label] for label in LABELS.values()}
    by_kind["fp8"] += [quantised(pair) for pair in by_kind["bf16"][:1]]
    report, races, sizes = Report(), dict[str, dict[str, Result]](), Sizes()
    print(f"{cpu_name()}; speeds in processor time, best of {arguments.rounds} interleaved rounds")
    for label, group in by_kind.items():
        if group:
            _measure(label, group, arguments.rounds, report, races, sizes)
    _only_ours(by_kind["bf16"] or pairs, arguments.rounds, report)
    report.checks(checks(races, sizes))
    print(f"\nwritten to {report.write()}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--hub", type=Path, help="directory of repositories; else generated data")
    parser.add_argument(
        "--pairs",
        nargs="+",
        type=lambda pair: pair.split("=", 1),
        metavar="TARGET=BASE",
        help="repositories of the hub; the first of each dtype is timed, all are sized",
    )
    parser.add_argument("--rounds", type=int, default=5, help="of which the best counts")
    arguments = parser.parse_args()
    if (arguments.hub is None) != (arguments.pairs is None):
        parser.error("expected --hub and --pairs together")
    return arguments


def _measure(
    label: str,
    pairs: Sequence[Pair],
    rounds: int,
    report: Report,
    races: dict[str, dict[str, Result]],
    sizes: Sizes,
) -> None:
    """Race and size one dtype, alone and against bases."""
    alone, missing = peers(delta=False)
    alone = [*map(ours, ALONE), *alone]
    delta = [*map(ours, DELTA), *peers(delta=True)[0]]
    if missing:
        print(f"left out, not installed: {', '.join(missing)}")
    first = pairs[0]
    tensor = flat(first.tensors)
    races[f"{label} alone"] = race(alone, flat(first.bases()), rounds)
    report.race(f"{label} alone", races[f"{label} alone"])
    races[f"{label} delta"] = race(delta, tensor, rounds) | _bound_results(tensor)
    report.race(f"{label} delta", races[f"{label} delta"])
    base = f"base of {first.name}"
    sized = {
        f"{label} alone": {base: _sizes(alone, first.bases())},
        f"{label} delta": {p.name: _sizes(delta, p.tensors) | _bounds(p.tensors) for p in pairs},
    }
    report.sizes(f"{label} alone", sized[f"{label} alone"], {base: first.nbytes})
    report.sizes(f"{label} delta", sized[f"{label} delta"], {p.name: p.nbytes for p in pairs})
    sizes.update(sized)


def _sizes(contestants: Iterable[Contestant], tensors: Sequence[Tensor]) -> dict[str, float]:
    return {contestant.name: stored(contestant, tensors) for contestant in contestants}


def _bounds(tensors: Sequence[Tensor]) -> dict[str, float]:
    return {name: sum(map(bound, tensors)) for name, bound in BOUNDS.items()}


def _bound_results(tensor: Tensor) -> dict[str, Result]:
    return {name: Result(tensor.nbytes, nbytes) for name, nbytes in _bounds([tensor]).items()}


def _only_ours(pairs: Sequence[Pair], rounds: int, report: Report) -> None:
    """Measure what has no peer: threads, first calls, memory."""
    delta, alone = flat(pairs[0].tensors), flat(pairs[0].bases())
    inputs = {codec: alone if codec in ALONE else delta for codec in (*ALONE, *DELTA)}
    if (os.cpu_count() or 1) > 1:
        factors = {codec: race_threads(codec, tensor, rounds) for codec, tensor in inputs.items()}
        report.quantities("two threads to one", "speed", factors)
    seconds = {
        f"{codec}, {cache} cache": row
        for codec in FIRST_CALLS
        for cache, row in processes.first_calls(codec, inputs[codec]).items()
    }
    report.quantities("first call of a process", "seconds", seconds)
    shares = {codec: processes.peak_memory(codec, tensor) for codec, tensor in inputs.items()}
    report.quantities("peak memory beside the inputs", "share of the tensor", shares)


if __name__ == "__main__":
    main()
