"""The texts, and one model that is trained on them."""

import ast
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from making.repositories import (
    BATCH,
    CONTEXT,
    FROZEN,
    HEADS,
    LAYERS,
    VOCABULARY,
    WIDTH,
    Training,
    require,
)

SKIPPED = {"test", "tests", "idlelib", "lib2to3", "site-packages", "turtledemo", "pydoc_data"}


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
