"""What the hub consists of: the repositories, their lineage and how each is trained and laid out."""

from dataclasses import dataclass
from typing import Literal

Layout = Literal["single", "sharded", "reordered", "truncated"]
Card = Literal["string", "list", "plain", "none"]  # how the README gives base_model, if at all

WIDTH, LAYERS, HEADS, CONTEXT, VOCABULARY = 96, 3, 6, 128, 256
BATCH = 12
FROZEN = ("wte.", "wpe.", "h.0.")


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


def require(holds: bool, message: str) -> None:
    """Raise RuntimeError with the message unless the condition holds."""
    if not holds:
        raise RuntimeError(f"the hub is not as promised: {message}")
