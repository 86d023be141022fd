"""What a verification tells."""

from __future__ import annotations

from tstore.cli.tables import plural
from tstore.restore.verify import VerifyReport


def print_verification(report: VerifyReport, *, read_data: bool) -> None:
    """One line for each problem, and one that says what was looked at."""
    for problem in report.problems:
        print(problem)
    what = "decoded and compared" if read_data else "present; --read-data also decodes them"
    looked_at = ", ".join(
        plural(count, noun)
        for count, noun in (
            (report.runs, "run"),
            (report.files, "file"),
            (report.blobs, "blob"),
            (report.packs, "pack"),
        )
    )
    verdict = plural(len(report.problems), "problem") if report.problems else f"all {what}"
    print(f"{looked_at}: {verdict}")
