"""A hub that arrives in batches: what planning by arrival loses, and what replanning wins back.

    python -m benchmarks.arrivals --hub ~/hub --scratch /dev/shm/arrivals --csv arrivals.csv

Three stores are made from the same hub: all at once with a full replan, in batches, and in batches with
a replan after each. Set RAY_ADDRESS to a running cluster, else each of the jobs starts its own.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import shutil
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

from tstore.catalog import open_store
from tstore.cluster.ingest import IngestOptions, ingest
from tstore.cluster.replan import ReplanOptions, replan
from tstore.hub.snapshot import list_hub
from tstore.restore.verify import verify

QUIET = Console(file=io.StringIO())


@dataclass
class Step:
    """Stored bytes after one batch, in millions.

    Attributes
    ----------
    batch, last : int, str
        Number and last model of the batch.
    raw, arriving, replanned : float
        Of the hub so far, of the store without and with replans.
    moved, written, seconds : int, float, float
        Tensors and bytes that the replan rewrote, and its time.
    """

    batch: int
    last: str
    raw: float
    arriving: float
    replanned: float = 0.0
    moved: int = 0
    written: float = 0.0
    seconds: float = 0.0


def stored_nbytes(store: Path) -> int:
    """Bytes of all blobs that count."""
    with open_store(str(store)).catalog().connect() as connection:
        ((nbytes,),) = connection.sql("SELECT sum(nbytes) FROM current_blobs").fetchall()
    return int(nbytes)


def order_of(hub: Path, manifest: Path | None) -> list[str]:
    """Models in order of arrival: as a manifest has it, else by the age of their oldest file."""
    if manifest is not None:
        return [entry["model"] for entry in json.loads(manifest.read_text())["order"]]
    oldest: dict[str, float] = {}
    for file in list_hub(str(hub)).files:
        age = Path(file.source.source).stat().st_mtime
        oldest[file.repo] = min(age, oldest.get(file.repo, age))
    return sorted(oldest, key=lambda repo: (oldest[repo], repo))


def grow(hub: Path, models: list[str], batches: int, scratch: Path) -> list[Step]:
    """Ingest batch by batch into two stores, one of which is replanned each time."""
    plain, planned = scratch / "arriving", scratch / "replanned"
    steps, raw = list[Step](), 0
    for number in range(batches):
        some = models[number * len(models) // batches : (number + 1) * len(models) // batches]
        include = tuple(f"{model}/*" for model in some)
        for store in (plain, planned):
            report = ingest(IngestOptions(hub=str(hub), store=str(store), include=include), QUIET)
        raw += report.counts["bytes_in"]
        started = time.perf_counter()
        counts = replan(ReplanOptions(store=str(planned)), QUIET).counts
        steps.append(
            Step(
                batch=number + 1,
                last=some[-1],
                raw=raw / 1e6,
                arriving=stored_nbytes(plain) / 1e6,
                replanned=stored_nbytes(planned) / 1e6,
                moved=counts.get("moves_made", 0),
                written=counts.get("bytes_written", 0) / 1e6,
                seconds=time.perf_counter() - started,
            )
        )
        print(", ".join(f"{k} {v:.2f}" if type(v) is float else f"{k} {v}"
                        for k, v in asdict(steps[-1]).items()))  # fmt: skip
    return steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)  # fmt: skip
    parser.add_argument("--hub", type=Path, required=True)
    parser.add_argument("--manifest", type=Path, help="JSON whose `order` lists the models")
    parser.add_argument("--batches", type=int, default=10)
    parser.add_argument("--scratch", type=Path, required=True, help="directory for the stores")
    parser.add_argument("--csv", type=Path)
    options = parser.parse_args()
    shutil.rmtree(options.scratch, ignore_errors=True)
    models = order_of(options.hub, options.manifest)
    steps = grow(options.hub, models, options.batches, options.scratch)
    whole = options.scratch / "whole"
    include = tuple(f"{model}/*" for model in models)
    ingest(IngestOptions(hub=str(options.hub), store=str(whole), include=include), QUIET)
    at_once = stored_nbytes(whole) / 1e6
    replan(ReplanOptions(store=str(whole), everything=True), QUIET)
    best, last = stored_nbytes(whole) / 1e6, steps[-1]
    print(f"all at once {at_once:.2f} MB, with a full replan {best:.2f} MB")
    for name, found in (("arriving", last.arriving), ("replanned", last.replanned)):
        print(f"{name}: {found:.2f} MB, {found / best - 1:+.2%}")
    print(f"rewritten in all: {sum(step.written for step in steps):.2f} MB")
    assert not verify(open_store(str(options.scratch / "replanned")), read_data=True).problems
    if options.csv is not None:
        with options.csv.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(asdict(last)))
            writer.writeheader()
            writer.writerows(asdict(step) for step in steps)
    shutil.rmtree(options.scratch)


if __name__ == "__main__":
    main()
