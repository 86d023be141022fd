"""After `warm_kernels` an ingest and a restore compile nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numba.core.dispatcher
import numpy as np

from support.hubs import bf16_weights, drifted, safetensors_bytes

ROOT = Path(__file__).parents[2]
HUB = ROOT / "examples" / "hub"
WIDTHS = {"F8_E5M2": 1, "F16": 2, "F32": 4, "F64": 8, "I8": 1, "I16": 2, "U32": 4, "I64": 8}


def compiled() -> set[str]:
    """Every kernel of ours by the types that it is there for, compiled or read from the cache."""
    return {
        f"{module.__name__}.{name}{signature}"
        for module in list(sys.modules.values())
        if getattr(module, "__name__", "").startswith("tstore")
        for name, kernel in vars(module).items()
        if isinstance(kernel, numba.core.dispatcher.Dispatcher)
        for signature in kernel.signatures
    }


def test_nothing_is_left_to_compile(tmp_path: Path) -> None:
    write_hub_of_all_widths(tmp_path / "hub")
    done = subprocess.run(  # a process in which no other test has compiled anything
        [sys.executable, __file__, HUB, tmp_path / "hub"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(ROOT / "tests")])},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stdout.splitlines()


def write_hub_of_all_widths(root: Path) -> None:
    """Two models with tensors of every element width, floats and integers, aligned and not."""
    rng = np.random.default_rng(0)
    base = bf16_weights(rng, 96, 1024)
    for repo, weights in (("lab/base", base), ("lab/tuned", drifted(rng, base))):
        tensors = {dtype: (dtype, weights.view(f"u{width}")) for dtype, width in WIDTHS.items()}
        (root / repo).mkdir(parents=True)
        data = safetensors_bytes({"odd": ("U8", np.zeros(3, np.uint8)), **tensors})
        (root / repo / "model.safetensors").write_bytes(data)


def main(*hubs: str) -> None:
    """Print what an ingest and a restore of the hubs had to compile."""
    from support.inline import ingest_inline
    from support.stores import restore_all
    from tstore.cluster.warm import warm_kernels

    warm_kernels()
    warm = compiled()
    for number, hub in enumerate(hubs):
        store = Path(f"store-{number}")
        ingest_inline(Path(hub), store)
        restore_all(store, Path(f"restored-{number}"))
    print(*sorted(compiled() - warm), sep="\n", end="")


if __name__ == "__main__":
    main(*sys.argv[1:])
