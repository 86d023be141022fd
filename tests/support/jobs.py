"""Run ``jobs/ingest.py``, as a user does."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "hub"
INGEST = ROOT / "jobs" / "ingest.py"
TIMEOUT_S = 200  # the first job may have to compile the kernels


def run_ingest(
    environment: Mapping[str, str], *args: str | Path, code: int
) -> tuple[dict[str, Any], str]:
    """Run the job to its end with this exit code; its JSON and its stderr."""
    done = subprocess.run(
        [sys.executable, INGEST, *args, "--json"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == code, done.stderr
    lines = done.stdout.splitlines()
    return (json.loads(lines[-1]) if lines else {}), done.stderr
