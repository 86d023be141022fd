"""Runs in a fresh process: ``python -m benchmarks.probe first|memory CODEC FILE``.

Prints one JSON object about the tensor in FILE, an ``.npz`` with data, base (may be empty), shape
and dtype. Only the standard library and numpy are loaded before the clock starts.
"""

import json
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

FORGET_PEAK = "5"
"""What makes Linux forget the peak of a process: proc_pid_clear_refs(5)."""

SMALL_ROWS = 8


def main(mode: str, codec: str, file: str) -> None:
    """Measure and print."""
    with np.load(file) as stored:
        arrays = dict(stored)
    start = time.perf_counter()
    import tstore_codecs

    seconds = {"import": time.perf_counter() - start}
    dtype = str(arrays["dtype"])

    def round_trip(rows: int) -> list[Callable[[], Any]]:
        """Return an encode of the first `rows` rows, and a decode of what it made."""
        share = arrays["data"].size // arrays["shape"][0]
        data = arrays["data"][: rows * share]
        base = arrays["base"][: rows * share] if arrays["base"].size else None
        shape, blobs = (rows, int(arrays["shape"][1])), list[bytes]()

        def encode() -> None:
            blobs.append(
                tstore_codecs.encode(data, dtype=dtype, codec=codec, shape=shape, base=base)
            )

        return [encode, lambda: tstore_codecs.decode(blobs[0], base=base)]

    names, calls = ("encode", "decode"), round_trip(int(arrays["shape"][0]))
    if mode == "first":
        for name, call in zip(names, calls, strict=True):
            start = time.perf_counter()
            call()
            seconds[name] = time.perf_counter() - start
        print(json.dumps(seconds))
    else:
        for call in round_trip(SMALL_ROWS):  # loads compiled code
            call()
        size = arrays["data"].size
        print(json.dumps({n: _peak(call) / size for n, call in zip(names, calls, strict=True)}))


def _peak(call: Callable[[], Any]) -> int:
    """Return by how many bytes `call` raises the resident memory at most, its result included."""
    Path("/proc/self/clear_refs").write_text(FORGET_PEAK)
    before = _status("VmRSS")
    result = call()
    peak = _status("VmHWM")
    del result
    return peak - before


def _status(name: str) -> int:
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    if found is None:
        raise OSError(f"expected {name} in /proc/self/status: the memory probe needs Linux")
    return 1024 * int(found[1])


if __name__ == "__main__":
    main(*sys.argv[1:])
