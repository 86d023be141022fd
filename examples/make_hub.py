"""Train a small hub of related models: the data behind the examples and the end-to-end tests.

Every weight comes from real training (AdamW, warm-up, linear decay) of one byte-level decoder on
texts that ship with Python, so deltas look as they do in a real hub, only smaller.  The script
writes ``<out>/<org>/<name>/...`` and, beside the hub, ``lineage.json`` with the true parents.

    pip install torch numpy safetensors
    python examples/make_hub.py [--out examples/hub]
"""

import argparse
import ast
import json
import shutil
import struct
import sysconfig
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F

Weights = dict[str, Tensor]
Layout = Literal["single", "sharded", "reordered", "truncated"]
Card = Literal["string", "list", "plain", "none"]  # how the README gives base_model, if at all

WIDTH, LAYERS, HEADS, CONTEXT, VOCABULARY = 96, 3, 6, 128, 256
BATCH = 12
MAX_BYTES = 12_000_000
FROZEN = ("wte.", "wpe.", "h.0.")
SKIPPED = {"test", "tests", "idlelib", "lib2to3", "site-packages", "turtledemo", "pydoc_data"}
NEAR = {"bfloat16": 0.3, "float32": 0.4}  # bits; the low mantissa of an f32 is noise in any pair
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Training:
    """One run of the optimiser: on which text, how long, how fast."""

    text: str
    steps: int
    rate: float
    seed: int
    frozen: bool = False


@dataclass(frozen=True)
class Repository:
    """One repository of the hub; without ``training`` it republishes its parent's weights."""

    name: str
    parent: str | None
    note: str
    dtype: str = "bfloat16"
    training: Training | None = None
    claim: str | None = None
    card: Card = "string"
    layout: Layout = "single"
    prefix: str = ""


BASE, EXPORT, DOCS = "tinylab/pygpt", "tinylab/pygpt-bf16", "acme/pygpt-docs"
HUB = (
    Repository(BASE, None, "base model, trained from scratch on the standard library",
               dtype="float32", training=Training("library", 500, 3e-3, 1)),
    Repository(EXPORT, BASE, "bf16 export of the f32 base", claim=BASE),
    Repository(DOCS, EXPORT, "fine-tune on docstrings, low learning rate",
               training=Training("docstrings", 60, 1e-5, 2), claim=EXPORT),
    Repository("acme/pygpt-docs-hilr", EXPORT, "fine-tune on docstrings, high learning rate",
               training=Training("docstrings", 60, 5e-4, 3)),
    Repository("acme/pygpt-tests-frozen", EXPORT,
               "fine-tune on unittest and doctest, embeddings and first layer frozen",
               training=Training("testing", 60, 2e-5, 4, frozen=True), claim=EXPORT, card="list"),
    Repository("acme/pygpt-docs-stage2", DOCS, "second fine-tune, on the language reference",
               training=Training("reference", 60, 1e-5, 5), claim=BASE),
    Repository("zeta/pygpt-renamed", EXPORT, "fine-tune on network code, tensors renamed",
               training=Training("network", 60, 3e-5, 6), card="plain", prefix="transformer."),
    Repository("zeta/pygpt-math-f32", BASE, "f32 fine-tune on the number modules, two shards",
               dtype="float32", training=Training("numbers", 60, 2e-5, 7), claim=BASE,
               layout="sharded"),
    Repository("mirror/pygpt-bf16-reupload", EXPORT,
               "same tensors as the bf16 export, other header order and metadata",
               card="none", layout="reordered"),
    Repository("other/rsgpt-bf16", None, "unrelated model of the same shapes, other text and seed",
               training=Training("reference", 250, 3e-3, 8), card="plain"),
    Repository("broken/pygpt-truncated", EXPORT, "the bf16 export, cut off inside the data",
               claim=EXPORT, layout="truncated"),
)  # fmt: skip


# -- texts ----------------------------------------------------------------------------------------


def library_sources(*globs: str) -> Iterator[str]:
    """Yield standard-library sources that match, sorted by path, without tests and data."""
    root = Path(sysconfig.get_path("stdlib"))
    for path in sorted({path for glob in globs for path in root.glob(glob)}):
        folders = path.relative_to(root).parts[:-1]
        if not SKIPPED.intersection(folders) and not any(f.startswith("config-") for f in folders):
            yield path.read_text(encoding="utf-8")


def docstrings(source: str) -> str:
    """Return the docstrings of a module, its classes and its functions."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = (ast.get_docstring(n) for n in ast.walk(ast.parse(source)) if isinstance(n, kinds))
    return "\n\n".join(text for text in found if text)


def texts() -> dict[str, Tensor]:
    """Return the training texts as uint8 tensors of UTF-8 bytes."""
    root = Path(sysconfig.get_path("stdlib"))
    numbers = ("statistics.py", "fractions.py", "_pydecimal.py", "numbers.py", "random.py")
    parts = {
        "library": library_sources("**/*.py"),
        "docstrings": map(docstrings, library_sources("*.py")),
        "testing": library_sources("unittest/*.py", "doctest.py"),
        "numbers": library_sources(*numbers),
        "network": library_sources("email/*.py", "http/*.py", "urllib/*.py", "asyncio/*.py"),
        "reference": [(root / "pydoc_data/topics.py").read_text(encoding="utf-8")],
    }
    return {
        name: torch.tensor(bytearray("\n".join(part).encode()), dtype=torch.uint8)
        for name, part in parts.items()
    }


# -- model and training ---------------------------------------------------------------------------


class Block(nn.Module):
    """Pre-norm decoder layer: causal self-attention and a GELU perceptron."""

    def __init__(self) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(WIDTH)
        self.attn = nn.ModuleDict(
            {"c_attn": nn.Linear(WIDTH, 3 * WIDTH), "c_proj": nn.Linear(WIDTH, WIDTH)}
        )
        self.ln_2 = nn.LayerNorm(WIDTH)
        self.mlp = nn.ModuleDict(
            {"c_fc": nn.Linear(WIDTH, 4 * WIDTH), "c_proj": nn.Linear(4 * WIDTH, WIDTH)}
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map activations [batch, time, width] to the same shape."""
        batch, time_, _ = x.shape
        qkv = self.attn["c_attn"](self.ln_1(x)).view(batch, time_, 3, HEADS, WIDTH // HEADS)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.attn["c_proj"](mixed.transpose(1, 2).reshape(batch, time_, WIDTH))
        x = x + self.mlp["c_proj"](F.gelu(self.mlp["c_fc"](self.ln_2(x))))
        return x


class PyGPT(nn.Module):
    """Byte-level GPT with learned positions; the output layer shares the embedding."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.wte = nn.Embedding(VOCABULARY, WIDTH)
        self.wpe = nn.Embedding(CONTEXT, WIDTH)
        self.h = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_f = nn.LayerNorm(WIDTH)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:  # fan-in scale, so a fine-tuning step is small against an ULP
                nn.init.normal_(parameter, std=parameter.shape[1] ** -0.5)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def loss(self, text: Tensor, count: int, generator: torch.Generator) -> Tensor:
        """Return the mean cross-entropy in nats per byte on ``count`` random windows."""
        starts = torch.randint(len(text) - CONTEXT - 1, (count, 1), generator=generator)
        window = text[starts + torch.arange(CONTEXT + 1)].long()
        x = self.wte(window[:, :-1]) + self.wpe.weight
        for block in self.h:
            x = block(x)
        logits = self.ln_f(x) @ self.wte.weight.T
        return F.cross_entropy(logits.flatten(0, 1), window[:, 1:].flatten())


def probe(model: PyGPT, text: Tensor) -> float:
    """Return the loss on 64 windows of the text that are the same at each call."""
    with torch.no_grad():
        return round(float(model.loss(text, 64, torch.Generator().manual_seed(0))), 4)


def train(model: PyGPT, text: Tensor, plan: Training) -> dict[str, Any]:
    """Train in place and return the trainer state; raises if the loss did not fall."""
    for name, parameter in model.named_parameters():
        parameter.requires_grad = not (plan.frozen and name.startswith(FROZEN))
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimiser = torch.optim.AdamW(parameters, plan.rate, betas=(0.9, 0.95), weight_decay=0.01)
    warm_up = max(1, plan.steps // 10)
    generator = torch.Generator().manual_seed(plan.seed)
    history: list[dict[str, float]] = [{"step": 0, "loss": probe(model, text)}]
    for step in range(1, plan.steps + 1):
        scale = min(step / warm_up, (plan.steps - step + 1) / (plan.steps - warm_up))
        optimiser.param_groups[0]["lr"] = plan.rate * scale
        torch.autograd.backward(model.loss(text, BATCH, generator))
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
        optimiser.zero_grad()
        if step % max(1, plan.steps // 5) == 0:
            history.append({"step": step, "loss": probe(model, text)})
    require(history[-1]["loss"] < history[0]["loss"], f"the loss did not fall: {history}")
    print("   loss " + " > ".join(f"{entry['loss']:.3f}" for entry in history), flush=True)
    return {"global_step": plan.steps, "learning_rate": plan.rate, "log_history": history}


# -- files of a repository ------------------------------------------------------------------------


def write_json(path: Path, value: object) -> None:
    """Write indented JSON with a final newline, UTF-8 not escaped."""
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def tokenizer() -> dict[str, Any]:
    """Return a byte-level ``tokenizer.json`` without merges: token id = byte value."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in visible]
    character = {byte: chr(byte) for byte in visible}
    character |= {byte: chr(256 + rank) for rank, byte in enumerate(hidden)}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
             "use_regex": False}  # fmt: skip
    vocabulary = {character[byte]: byte for byte in range(256)}
    return {"version": "1.0", "added_tokens": [], "pre_tokenizer": level, "decoder": level,
            "model": {"type": "BPE", "vocab": vocabulary, "merges": []}}  # fmt: skip


def model_card(repository: Repository) -> str:
    """Return the README; its front matter claims ``repository.claim`` as the base."""
    organisation, name = repository.name.split("/")
    body = f"# {name}\n\nPublished by {organisation}: {repository.note}.\n"
    if plan := repository.training:
        body += f"\nTrained for {plan.steps} steps, batch {BATCH}, peak rate {plan.rate:g}.\n"
    if repository.card == "plain":
        return body
    claim = f"\n- {repository.claim}" if repository.card == "list" else f" {repository.claim}"
    base = f"base_model:{claim}\n" if repository.claim else ""
    return f"---\nlicense: apache-2.0\n{base}tags:\n- text-generation\n---\n\n{body}"


def write_text_files(folder: Path, repository: Repository, state: dict[str, Any] | None) -> None:
    """Write the small files around the weights."""
    config = {"architectures": ["PyGPT"], "model_type": "pygpt", "n_embd": WIDTH, "n_head": HEADS,
              "n_layer": LAYERS, "n_positions": CONTEXT, "tie_word_embeddings": True,
              "torch_dtype": repository.dtype, "vocab_size": VOCABULARY}  # fmt: skip
    write_json(folder / "config.json", config)
    write_json(folder / "tokenizer.json", tokenizer())
    if repository.card != "none":
        (folder / "README.md").write_text(model_card(repository), encoding="utf-8")
    if state:
        write_json(folder / "trainer_state.json", state)
    if repository.parent is None:
        write_json(folder / "generation_config.json", {"do_sample": True, "temperature": 0.8})
        # No LFS filter here: inside this project's own repository git would obey it.
        (folder / ".gitattributes").write_text("*.safetensors binary\n* -text\n", encoding="utf-8")
        (folder / "LICENSE").write_text(
            "Licensed under the Apache License, Version 2.0.\n"
            "You may obtain a copy at http://www.apache.org/licenses/LICENSE-2.0\n",
            encoding="utf-8",
        )


def write_single(folder: Path, weights: Weights) -> None:
    """Write one file in the order of the safetensors library."""
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def write_sharded(folder: Path, weights: Weights) -> None:
    """Write two shards and their index; the last layer and what follows go to the second."""
    parts: tuple[Weights, Weights] = ({}, {})
    for name, tensor in weights.items():
        parts[name.startswith((f"h.{LAYERS - 1}.", "ln_f."))][name] = tensor
    weight_map: dict[str, str] = {}
    for number, part in enumerate(parts, start=1):
        file = f"model-{number:05d}-of-00002.safetensors"
        save_file(part, folder / file, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(part, file)
    total = sum(tensor.nbytes for tensor in weights.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    write_json(folder / "model.safetensors.index.json", index)


def write_reordered(folder: Path, weights: Weights) -> None:
    """Write header and data by hand, in the reverse of the usual order, header not padded."""
    header: dict[str, Any] = {"__metadata__": {"uploaded_by": "mirror", "format": "pt"}}
    data = bytearray()
    for name in sorted(weights, reverse=True):
        raw = weights[name].view(torch.uint8).numpy().tobytes()
        span = [len(data), len(data) + len(raw)]
        shape = list(weights[name].shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": span}
        data += raw
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


def write_truncated(folder: Path, weights: Weights) -> None:
    """Write one file and keep its first half, as an interrupted upload would."""
    write_single(folder, weights)
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


WRITERS: dict[Layout, Callable[[Path, Weights], None]] = {
    "single": write_single,
    "sharded": write_sharded,
    "reordered": write_reordered,
    "truncated": write_truncated,
}


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


# -- checks, on the files and without torch -------------------------------------------------------


def require(holds: bool, message: str) -> None:
    """Raise RuntimeError with the message unless the condition holds."""
    if not holds:
        raise RuntimeError(f"the hub is not as promised: {message}")


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
