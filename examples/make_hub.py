"""Train a small hub of related models: the data behind the examples and the end-to-end tests.

Every weight comes from real training (AdamW, warm-up, linear decay) of one byte-level decoder on
texts that ship with Python, so deltas look as they do in a real hub, only smaller.  The script
writes ``<out>/<org>/<name>/...`` and, beside the hub, ``lineage.json`` with the true parents.

    pip install torch numpy safetensors
    python examples/make_hub.py [--out examples/hub]
"""

import argparse
import shutil
import time
from pathlib import Path

import torch
from making.checking import check
from making.repositories import HUB
from making.training import PyGPT, texts, train
from making.writing import WRITERS, Weights, write_json, write_text_files

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def build(out: Path) -> None:
    """Train and write all repositories and ``lineage.json`` beside the hub."""
    started = time.monotonic()
    corpus, published = texts(), dict[str, Weights]()
    for repository in HUB:
        print(f"[{time.monotonic() - started:5.0f} s] {repository.name}", flush=True)
        weights = published[repository.parent] if repository.parent else {}
        state = None
        if plan := repository.training:
            model = PyGPT(plan.seed)
            if weights:
                model.load_state_dict(weights)  # copies into f32, so bf16 weights are upcast
            state = train(model, corpus[plan.text], plan)
            weights = model.state_dict()
        weights = {name: tensor.to(DTYPES[repository.dtype]) for name, tensor in weights.items()}
        published[repository.name] = weights
        folder = out / repository.name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        write_text_files(folder, repository, state)
        renamed = {repository.prefix + name: tensor for name, tensor in weights.items()}
        WRITERS[repository.layout](folder, renamed)
    lineage = {
        r.name: {"parent": r.parent, "dtype": r.dtype, "readme_base_model": r.claim, "note": r.note}
        for r in HUB
    }
    write_json(out.parent / "lineage.json", lineage)


def main() -> None:
    """Remake all repositories in ``--out`` and check them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("hub"))
    out: Path = parser.parse_args().out
    torch.set_num_threads(1)  # one thread: the same sums in the same order at each run
    build(out)
    check(out)


if __name__ == "__main__":
    main()
