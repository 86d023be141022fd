"""What only a fresh process can tell: its first call, and its peak memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.data import WIDTHS, Tensor

FIRST_CALL_ROWS = 1024


def first_calls(codec: str, tensor: Tensor) -> dict[str, dict[str, float]]:
    """Return seconds of the import and of the first calls on the first rows of `tensor`.

    ``cold`` is with an empty folder for compiled kernels; ``warm`` is the next process.
    """
    rows = min(FIRST_CALL_ROWS, tensor.shape[0])
    nbytes = rows * tensor.shape[1] * WIDTHS[tensor.dtype]
    base = None if tensor.base is None else tensor.base[:nbytes]
    part = Tensor(tensor.dtype, (rows, tensor.shape[1]), tensor.data[:nbytes], base)
    with tempfile.TemporaryDirectory() as cache:
        return {
            name: _probe("first", codec, part, {"NUMBA_CACHE_DIR": cache})
            for name in ("cold", "warm")
        }


def peak_memory(codec: str, tensor: Tensor) -> dict[str, float]:
    """Return what encode and decode take at most beside their inputs, as shares of `tensor`."""
    return _probe("memory", codec, tensor, {})


def _probe(mode: str, codec: str, tensor: Tensor, changes: dict[str, str]) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "tensor.npz")
        base = np.empty(0, np.uint8) if tensor.base is None else tensor.base
        np.savez(file, data=tensor.data, base=base, shape=tensor.shape, dtype=tensor.dtype)
        command = [sys.executable, "-m", "benchmarks.probe", mode, codec, str(file)]
        environment = {**os.environ, **changes}
        done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE)
    found: dict[str, float] = json.loads(done.stdout)
    return found
