"""The report for a terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from tstore.cli.tables import human, plural, print_table

ROWS = 10
_PARTS = ("dedup", "delta", "standalone")


def print_report(numbers: dict[str, Any], console: Console) -> None:
    """What the page says, in a screen or two."""
    _print_headline(numbers, console)
    _print_sums(console, "family", numbers["families"], numbers["counts"]["n_families"])
    for name in ("layer", "dtype"):
        found = numbers["splits"][name]
        _print_sums(console, name, found, len(found))
    _print_errors(numbers["errors"], console)
    _print_runs(numbers["runs"], console)
    for row in numbers["rejected_by_reason"]:
        files = plural(row["n_files"], "file")
        _say(console, f"{files} failed {row['reason']} ({human(row['nbytes'])})")


def _say(console: Console, line: str) -> None:
    console.print(line, highlight=False, markup=False, soft_wrap=True)


def _print_headline(numbers: dict[str, Any], console: Console) -> None:
    total, counts, reading = (numbers[name] for name in ("total", "counts", "reading"))
    on_disk = total["bytes_packs"] + total["bytes_catalog"]
    ratio = total["ratio_on_disk"] or 0.0
    _say(console, f"{numbers['store']}: {1 - ratio:.1%} saved")
    _say(
        console,
        f"{human(total['bytes_current'])} in {plural(total['n_files'], 'file')} of "
        f"{total['n_repositories']:,} repositories, stored in {human(on_disk)} ({ratio:.3f})",
    )
    saved = (f"{human(total[f'saved_by_{part}'])} by {part}" for part in _PARTS)
    _say(console, f"saved {', '.join(saved)}")
    _say(
        console,
        f"{plural(counts['n_tensors'], 'tensor')}, {counts['n_deltas']:,} of them deltas of "
        f"{counts['n_bases']:,} bases; {counts['n_families']:,} families",
    )
    if reading["bytes_restored"]:
        _say(
            console,
            f"restoring reads {reading['bytes_once'] / reading['bytes_restored']:.2f} bytes per "
            f"byte, {reading['blobs_per_extent']:.2f} blobs per tensor",
        )
    _say(console, f"{human(total['bytes_unreferenced'])} in packs that no kept file needs")
    console.print()


def _print_sums(console: Console, key: str, found: list[dict[str, Any]], count: int) -> None:
    cells = [
        [
            str(row[key]), human(row["bytes_in"]), human(row["bytes_stored"]),
            *(human(row[f"saved_by_{part}"]) for part in _PARTS), f"{row['ratio']:.3f}",
        ]
        for row in found[:ROWS]
    ]  # fmt: skip
    print_table(console, f"by {key}", [key, "raw", "stored", *_PARTS, "ratio"], cells)
    if count > ROWS:
        _say(console, f"and {count - ROWS:,} more")
    console.print()


def _print_errors(errors: list[dict[str, Any]], console: Console) -> None:
    names = "mae", "p90", "p99", "bias"
    cells = [
        [f"{row['dtype']} {row['codec']}", f"{row['n']:,}", *(f"{row[n]:.4f}" for n in names)]
        for row in errors
    ]
    print_table(console, "predicted minus reached ratio", ["codec", "n", *names], cells)
    console.print()


def _print_runs(runs: list[dict[str, Any]], console: Console) -> None:
    cells = []
    for run in runs[-ROWS:]:
        seconds = sum(run["seconds"].values())
        rate = f"{run['bytes_in'] / seconds / 1e6:,.0f} MB/s" if seconds else ""
        sizes = human(run["bytes_in"]), human(run["bytes_packs"])
        core = f"{run['core_seconds']:,.0f}"
        cells.append([run["committed_at"], run["kind"], *sizes, f"{seconds:,.0f}", rate, core])
    titles = ["run", "kind", "in", "packs", "seconds", "rate", "core seconds"]
    print_table(console, "runs", titles, cells)
    console.print()
