"""The files of a repository."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from making.repositories import (
    BATCH,
    CONTEXT,
    HEADS,
    LAYERS,
    VOCABULARY,
    WIDTH,
    Layout,
    Repository,
)

Weights = dict[str, Tensor]


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
