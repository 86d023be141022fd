"""Tiny hubs for tests that need files more than weights."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


def safetensors_bytes(
    tensors: dict[str, tuple[str, NDArray[np.generic]]], metadata: dict[str, str] | None = None
) -> bytes:
    """A safetensors file of (dtype name, array) entries, in the given order."""
    header: dict[str, object] = {} if metadata is None else {"__metadata__": metadata}
    data = b""
    for name, (dtype, array) in tensors.items():
        raw = array.tobytes()
        offsets = [len(data), len(data) + len(raw)]
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": offsets}
        data += raw
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def bf16_weights(rng: np.random.Generator, *shape: int) -> NDArray[np.uint16]:
    """Gaussian weights as bfloat16 bit patterns."""
    values = rng.normal(0, 0.05, shape).astype(np.float32)
    return (values.view(np.uint32) >> 16).astype(np.uint16)


def drifted(
    rng: np.random.Generator, weights: NDArray[np.uint16], share: float = 0.3
) -> NDArray[np.uint16]:
    """The same weights with the lowest bit of a share of them flipped, as a gentle fine-tune."""
    return weights ^ (rng.random(weights.shape) < share).astype(np.uint16)


def write_small_hub(root: Path) -> Path:
    """A family of three, an unrelated model, a broken file and small text files; about 1 MB."""
    rng = np.random.default_rng(7)
    base = {f"layer.{i}.weight": bf16_weights(rng, 128, 96) for i in range(6)}
    models = {
        "lab/base": base,
        "lab/tuned": {name: drifted(rng, weight) for name, weight in base.items()},
        "mirror/base-again": dict(reversed(base.items())),
        "other/unrelated": {name: bf16_weights(rng, 128, 96) for name in base},
    }
    for repo, tensors in models.items():
        folder = root / repo
        folder.mkdir(parents=True)
        entries = {name: ("BF16", weight) for name, weight in tensors.items()}
        data = safetensors_bytes(entries, {"format": "pt", "repo": repo})
        (folder / "model.safetensors").write_bytes(data)
        (folder / "config.json").write_text(json.dumps({"repo": repo}))
        (folder / "README.md").write_text(f"# {repo}\n")
    broken = root / "lab/broken"
    broken.mkdir()
    (broken / "model.safetensors").write_bytes(data[: len(data) // 2])
    (broken / "empty.txt").write_bytes(b"")
    return root


FAMILY_LAYERS = 4


def write_family(root: Path, count: int) -> list[Path]:
    """Hubs of one model each: fine-tunes of one, and that one last, so that by arrival a worse
    one becomes the base."""
    rng = np.random.default_rng(11)
    centre = [bf16_weights(rng, 128, 96) for _ in range(FAMILY_LAYERS)]
    hubs = []
    for number in range(count):
        last = number == count - 1
        weights = centre if last else [drifted(rng, weight, 0.25) for weight in centre]
        folder = root / f"batch{number}/lab/m{number}"
        folder.mkdir(parents=True)
        entries = {f"layer.{i}.weight": ("BF16", weight) for i, weight in enumerate(weights)}
        (folder / "model.safetensors").write_bytes(safetensors_bytes(entries, {"n": str(number)}))
        hubs.append(folder.parents[1])
    return hubs


def file_hashes(root: Path) -> dict[str, str]:
    """SHA-256 of every file below `root`, by relative path."""
    return {
        path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }
