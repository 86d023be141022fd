"""What the hub promises, checked on its files."""

import json
import struct
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open

from making.repositories import BASE, EXPORT, FROZEN, HUB, require

MAX_BYTES = 12_000_000
NEAR = {"bfloat16": 0.3, "float32": 0.4}  # bits; the low mantissa of an f32 is noise in any pair


def read_tensors(folder: Path) -> dict[str, np.ndarray]:
    """Return the raw bytes of all tensors of a repository, uint8, in header order."""
    tensors: dict[str, np.ndarray] = {}
    for path in sorted(folder.glob("*.safetensors")):
        raw = path.read_bytes()
        start = 8 + struct.unpack("<Q", raw[:8])[0]
        header = json.loads(raw[8:start])
        header.pop("__metadata__")
        for name, entry in header.items():
            first, last = entry["data_offsets"]
            tensors[name] = np.frombuffer(raw[start + first : start + last], np.uint8)
    return tensors


def differing_bits(target: dict[str, np.ndarray], base: dict[str, np.ndarray]) -> float:
    """Return the fraction of bits that differ; names must agree."""
    require(target.keys() == base.keys(), f"tensor names {list(target)[:2]}, {list(base)[:2]}")
    flips = sum(int(np.bitwise_count(target[name] ^ base[name]).sum()) for name in base)
    return flips / (8 * sum(tensor.nbytes for tensor in base.values()))


def check_files(out: Path) -> None:
    """The library reads every weight file, and refuses the truncated one; the hub is small."""
    for path in sorted(out.glob("*/*/*.safetensors")):
        try:
            with safe_open(path, framework="pt") as file:
                readable = all(file.get_tensor(name).isfinite().all() for name in file.keys())  # noqa: SIM118
        except SafetensorError:
            readable = False
        truncated = path.parent == out / "broken/pygpt-truncated"
        require(readable != truncated, f"{path} readable: {readable}")
    total = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    require(total < MAX_BYTES, f"{total} bytes, expected less than {MAX_BYTES}")


def check_duplicates(tensors: dict[str, dict[str, np.ndarray]]) -> None:
    """Exact copies are exact: the upload in another order, the frozen layers, the bf16 export."""
    export, copy = tensors[EXPORT], tensors["mirror/pygpt-bf16-reupload"]
    require(differing_bits(copy, export) == 0, "the re-upload is not an exact copy")
    require(list(copy) == list(export)[::-1], "the re-upload has the usual header order")
    for name, tensor in tensors["acme/pygpt-tests-frozen"].items():
        equal = np.array_equal(tensor, export[name])  # others may be too: updates below half an ULP
        require(equal or not name.startswith(FROZEN), f"{name} was frozen, but it changed")
    for name, tensor in tensors[BASE].items():
        word = tensor.view("<u4")
        nearest = (word + 0x7FFF + (word >> 16 & 1) >> 16).astype("<u2")  # ties to even
        require(np.array_equal(nearest, export[name].view("<u2")), f"bf16 export of {name}")


def check_distances(tensors: dict[str, dict[str, np.ndarray]]) -> dict[str, float]:
    """Fine-tunes are near their parent, the unrelated model is far; return all distances."""
    distances = {}
    for repository in HUB:
        target = tensors.get(repository.name, {})
        require(all(n.startswith(repository.prefix) for n in target), f"prefix of {repository}")
        if repository.parent and repository.training:
            bare = {name.removeprefix(repository.prefix): t for name, t in target.items()}
            distance = differing_bits(bare, tensors[repository.parent])
            require(0 < distance < NEAR[repository.dtype], f"{repository.name}: {distance:.1%}")
            distances[repository.name] = distance
    unrelated = differing_bits(tensors["other/rsgpt-bf16"], tensors[EXPORT])
    require(unrelated > NEAR["bfloat16"], f"the unrelated model differs in {unrelated:.1%}")
    return distances | {"other/rsgpt-bf16": unrelated}


def check(out: Path) -> None:
    """Run all checks and print a table: bytes, bits that differ from the parent."""
    tensors = {r.name: read_tensors(out / r.name) for r in HUB if r.layout != "truncated"}
    check_files(out)
    check_duplicates(tensors)
    distances = check_distances(tensors)
    for repository in HUB:
        files = [path for path in (out / repository.name).iterdir() if path.is_file()]
        size = sum(path.stat().st_size for path in files)
        bits = f"{distances[repository.name]:.2%}" if repository.name in distances else ""
        print(f"{repository.name:28} {repository.dtype:9} {len(files):2} files {size:9,} B {bits}")
