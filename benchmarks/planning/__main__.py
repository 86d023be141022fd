"""``python -m benchmarks.planning``: see benchmarks/RESULTS.md."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from benchmarks.planning import clusters, prediction, reduction, similarity, solving, traps
from benchmarks.planning.bench import Bench
from benchmarks.planning.figures import draw
from benchmarks.planning.scan import read_hub
from benchmarks.planning.sizes import ALONE
from benchmarks.planning.tables import Table, fill
from tstore.settings import SketchSettings

FOLDER = Path(__file__).parents[1]
RESULTS, PAGE = FOLDER / "results" / "planning", FOLDER / "RESULTS.md"
MAX_PRINTED = 100
"""Rows of a table to print."""
CACHE = FOLDER.parent / ".benchmarks" / "planning"


def main() -> None:
    """Run the experiments; write tables, figures and the page of results."""
    arguments = _arguments()
    with threadpool_limits(1):  # times are those of one core; encoding takes all there are
        _run(arguments)


def _run(arguments: argparse.Namespace) -> None:
    hub = read_hub(arguments.hub, arguments.cache, SketchSettings())
    bench = Bench(hub, arguments.cache)
    out = arguments.out or RESULTS
    out.mkdir(parents=True, exist_ok=True)
    tables: list[Table] = []
    for name in arguments.only or EXPERIMENTS:
        start = time.perf_counter()
        for table in EXPERIMENTS[name](bench):
            if len(table.rows) < MAX_PRINTED:
                print(f"\n{table.name}\n\n{table.markdown()}", end="", flush=True)
            table.write(out)
            draw(table, out)
            tables.append(table)
        print(f"\n{name}: {time.perf_counter() - start:.0f} s", flush=True)
    if arguments.out is None:
        PAGE.write_text(fill(PAGE.read_text(), tables))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planning", description=__doc__)
    parser.add_argument("--hub", type=Path, required=True, help="directory of repositories")
    parser.add_argument("--cache", type=Path, default=CACHE, help="sketches, sizes, distances")
    parser.add_argument("--out", type=Path, help="folder of the results, instead of this one's")
    parser.add_argument("--only", nargs="+", choices=EXPERIMENTS, help="some of the experiments")
    return parser.parse_args()


def _hub(bench: Bench) -> list[Table]:
    """The hub and what its sketches take (Tables 1 and 2)."""
    hub = bench.hub
    raw = sum(map(hub.nbytes, hub.contents))
    sketches = sum(group.sketches.nbytes for group in hub.groups)
    rows = [
        ("models", len(hub.contents)),
        ("tensors", sum(map(len, hub.contents.values()))),
        ("unique tensors", len(hub.arrivals)),
        ("of those with a sketch", sum(len(group.ids) for group in hub.groups)),
        ("raw MB", raw / 1e6),
        ("unique MB", sum(hub.tensors[name].nbytes for name in hub.arrivals) / 1e6),
        ("sketches MB", sketches / 1e6),
        ("sketches, share of raw", sketches / raw),
    ]
    return [Table("hub", ("", "hub"), rows)]


def _reduction(bench: Bench) -> list[Table]:
    hub, found = bench.hub, reduction.lines(bench)
    default = [line for line in found if line.codec in (ALONE, bench.codec)]
    return [
        reduction.totals_table(hub, found),
        reduction.growth_table(hub, found),
        reduction.tensors_table(hub, found),
        reduction.families_table(hub, default),
    ]


def _similarity(bench: Bench) -> list[Table]:
    return [similarity.similarity_table(bench)]


def _prediction(bench: Bench) -> list[Table]:
    found = prediction.judge_predictions(bench)
    return [
        prediction.errors_table(found),
        prediction.pairs_table(found),
        prediction.refusals_table(bench),
    ]


def _solving(bench: Bench) -> list[Table]:
    return [solving.solving_table(bench)]


def _clusters(bench: Bench) -> list[Table]:
    found = clusters.find_clusters(bench)
    return [
        clusters.splits_table(found),
        clusters.clusters_table(found),
        clusters.optimum_table(bench),
    ]


def _traps(bench: Bench) -> list[Table]:
    return [traps.traps_table(bench)]


EXPERIMENTS: Final[Mapping[str, Callable[[Bench], list[Table]]]] = {
    "hub": _hub,
    "reduction": _reduction,
    "similarity": _similarity,
    "prediction": _prediction,
    "solving": _solving,
    "clusters": _clusters,
    "traps": _traps,
}

if __name__ == "__main__":
    main()
