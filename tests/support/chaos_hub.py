"""Hubs for chaos: one of dozens of small tasks, and one with a tensor that fills a machine."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np

from support.hubs import bf16_weights, drifted, safetensors_bytes

_LAYERS = 16
_SHAPE = (256, 384)  # 192 KiB in BF16


def write_seed_hub(root: Path) -> Path:
    """One repository of 1 MB, for a store that has something to read from the start."""
    rng = np.random.default_rng(1)
    weights = {f"layer.{i}": ("BF16", bf16_weights(rng, *_SHAPE)) for i in range(5)}
    _write_repo(root / "seed/model", safetensors_bytes(weights))
    return root


def write_family_hub(root: Path) -> Path:
    """Two families of four, a re-upload and a broken file; 30 MB."""
    rng = np.random.default_rng(2)
    data = b""
    for family in range(2):
        base = [bf16_weights(rng, *_SHAPE) for _ in range(_LAYERS)]
        for tune in range(4):
            weights = [drifted(rng, weight, 0.1 * tune) for weight in base]
            entries = {f"layer.{i}": ("BF16", weight) for i, weight in enumerate(weights)}
            data = safetensors_bytes(entries, {"format": "pt"})
            _write_repo(root / f"lab{family}/tune{tune}", data)
    _write_repo(root / "mirror/again", data)
    _write_repo(root / "lab0/broken", data[: len(data) // 2])
    return root


def write_huge_hub(root: Path, nbytes: int, n_tiny: int) -> dict[str, str]:
    """A repository with one BF16 tensor of `nbytes`, and one with many of 64 bytes.

    Written in a stream. SHA-256 of each file by path.
    """
    rng = np.random.default_rng(3)
    tiny = rng.integers(0, 2**16, (n_tiny, 32), np.uint16)
    entries = {f"t{i}": ("BF16", row) for i, row in enumerate(tiny)}
    content = _tiny_tensors(entries)
    _write_repo(root / "lab/tiny", content)
    block = (rng.integers(0, 4, 16 << 20, np.uint8) + 0x3F80).astype(np.uint16)
    columns = 1000
    header = json.dumps(
        {"w": {"dtype": "BF16", "shape": [nbytes // 2 // columns, columns], "data_offsets": [0, nbytes]}}
    ).encode()
    folder = root / "lab/huge"
    folder.mkdir(parents=True)
    digest = hashlib.sha256()
    with (folder / "model.safetensors").open("wb") as file:
        pieces = [len(header).to_bytes(8, "little"), header]
        for start in range(0, nbytes, block.nbytes):
            pieces.append(np.roll(block, start // 7919).tobytes()[: nbytes - start])
            for piece in pieces:
                file.write(piece)
                digest.update(piece)
            pieces = []
    return {
        "lab/huge/model.safetensors": digest.hexdigest(),
        "lab/tiny/model.safetensors": hashlib.sha256(content).hexdigest(),
    }


def _tiny_tensors(entries: dict[str, tuple[str, np.ndarray]]) -> bytes:
    header: dict[str, object] = {}
    end = 0
    for name, (dtype, row) in entries.items():
        header[name] = {
            "dtype": dtype,
            "shape": list(row.shape),
            "data_offsets": [end, end + row.nbytes],
        }
        end += row.nbytes
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + b"".join(r.tobytes() for _, r in entries.values())


def _write_repo(folder: Path, data: bytes) -> None:
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(data)
