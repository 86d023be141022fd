"""Hubs for chaos: one of dozens of small tasks, and one with a tensor that fills a machine."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from support.hubs import bf16_weights, drifted, safetensors_bytes

Entries = dict[str, tuple[str, NDArray[np.generic]]]
_LAYERS = 16
_SHAPE = (256, 384)  # 192 KiB in BF16
_TINY_PER_FILE = 1000
_HUGE_COLUMNS = 1000


def write_seed_hub(root: Path) -> Path:
    """One repository of 1 MB, for a store that has something to read from the start."""
    rng = np.random.default_rng(1)
    weights = [bf16_weights(rng, *_SHAPE) for _ in range(5)]
    _write_repo(root / "seed/model", safetensors_bytes(_layers(weights)))
    return root


def write_family_hub(root: Path) -> Path:
    """Two families of four, a re-upload and a broken file; 30 MB."""
    rng = np.random.default_rng(2)
    data = b""
    for family in range(2):
        base = [bf16_weights(rng, *_SHAPE) for _ in range(_LAYERS)]
        for tune in range(4):
            weights = [drifted(rng, weight, 0.1 * tune) for weight in base]
            data = safetensors_bytes(_layers(weights), {"format": "pt"})
            _write_repo(root / f"lab{family}/tune{tune}", data)
    _write_repo(root / "mirror/again", data)
    _write_repo(root / "lab0/broken", data[: len(data) // 2])
    return root


def write_huge_hub(root: Path, nbytes: int, n_tiny: int) -> Path:
    """A repository with one BF16 tensor of `nbytes`, and one with many of 64 bytes."""
    rng = np.random.default_rng(3)
    for number in range(0, n_tiny, _TINY_PER_FILE):
        rows = list(rng.integers(0, 2**16, (_TINY_PER_FILE, 32), np.uint16))
        _write_repo(root / f"lab/tiny{number}", safetensors_bytes(_layers(rows)))
    shape = [nbytes // 2 // _HUGE_COLUMNS, _HUGE_COLUMNS]
    entry = {"dtype": "BF16", "shape": shape, "data_offsets": [0, nbytes]}
    header = json.dumps({"huge": entry}).encode()
    _write_repo(root / "lab/huge", len(header).to_bytes(8, "little") + header)
    block = rng.integers(0x3F80, 0x3F84, 16 << 20, np.uint16)  # two bits of each are random
    with (root / "lab/huge/model.safetensors").open("ab") as file:
        for start in range(0, nbytes, block.nbytes):
            piece = np.roll(block, start // 7919)  # lest the parts be equal
            file.write(piece.tobytes()[: nbytes - start])
    return root


def _layers(weights: list[NDArray[np.uint16]]) -> Entries:
    return {f"layer.{i}": ("BF16", weight) for i, weight in enumerate(weights)}


def _write_repo(folder: Path, data: bytes) -> None:
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(data)
