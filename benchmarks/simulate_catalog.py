"""Write the catalog of a made-up hub: ``python -m benchmarks.simulate_catalog --store DIR``.

Families of models of one architecture: a base, then fine-tunes whose tensors are copies of those of
the base, deltas of them, or something of their own. There are no packs and no sketches; all other
rows are what an ingest in a few runs would have left, the same whenever it is made.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from tstore.catalog import RunMarker
from tstore.catalog.catalog import commit, write_tables
from tstore.catalog.savings import summarise
from tstore.catalog.schema import TABLES
from tstore.catalog.store import open_or_create
from tstore.ids import OPAQUE, content_hash
from tstore.settings import SketchSettings

RUNS = 20
MODELS_PER_FAMILY = 40
LAYERS = 24
HEADER_NBYTES = 4096
PACK_BLOBS = 2000
PACK_HEADER_NBYTES = 512 * 1024
_BLOCK = {
    "input_layernorm": [2048],
    "self_attn.q_proj": [2048, 2048],
    "self_attn.k_proj": [512, 2048],
    "self_attn.v_proj": [512, 2048],
    "self_attn.o_proj": [2048, 2048],
    "post_attention_layernorm": [2048],
    "mlp.gate_proj": [5632, 2048],
    "mlp.up_proj": [5632, 2048],
    "mlp.down_proj": [2048, 5632],
}
TEMPLATE = [
    ("model.embed_tokens.weight", [32000, 2048]),
    *(
        (f"model.layers.{layer}.{name}.weight", shape)
        for layer in range(LAYERS)
        for name, shape in _BLOCK.items()
    ),
    ("model.norm.weight", [2048]),
    ("lm_head.weight", [32000, 2048]),
]
COPY, DELTA, ALONE = range(3)

Row = dict[str, Any]


@dataclass
class Rows:
    """Rows of one run."""

    files: list[Row] = field(default_factory=list)
    tensors: list[Row] = field(default_factory=list)
    blobs: list[Row] = field(default_factory=list)
    plans: list[Row] = field(default_factory=list)
    fingerprints: list[Row] = field(default_factory=list)


def _hash(number: int) -> str:
    """32 hex digits that compress as badly as real ones."""
    return content_hash(str(number).encode())


def models(count: int, seed: int) -> Iterator[tuple[str, list[tuple[str, str | None]]]]:
    """Repositories, each with the id and base of every tensor of the template."""
    rng = np.random.default_rng(seed)
    bases: list[str] = []
    number = 0
    for model in range(count):
        family, member = divmod(model, MODELS_PER_FAMILY)
        shares = [0.0, 0.0, 1.0] if member == 0 else [0.15, 0.75, 0.1]
        kinds = rng.choice(3, len(TEMPLATE), p=shares)
        tensors: list[tuple[str, str | None]] = []
        for place, ((_, shape), kind) in enumerate(zip(TEMPLATE, kinds, strict=True)):
            if kind == COPY:
                tensors.append((bases[place], None))
                continue
            number += 1
            text = ",".join(map(str, shape))
            tensors.append(
                (f"{_hash(number)}:BF16[{text}]", bases[place] if kind == DELTA else None)
            )
        if member == 0:
            bases = [tensor_id for tensor_id, _ in tensors]
        yield f"org-{family:03d}/model-{member:02d}", tensors


def add_model(
    rows: Rows, known: set[str], repo: str, tensors: list[tuple[str, str | None]], seed: int
) -> None:
    """Add a repository of one file to the rows of a run."""
    rng = np.random.default_rng(seed)
    place = {"repo": repo, "revision": "main", "path": "model.safetensors"}
    header = f"{_hash(-seed)}:{OPAQUE}[{HEADER_NBYTES}]"
    layout = [{"tensor_id": header, "nbytes": HEADER_NBYTES}]
    _add_blob(rows, known, header, OPAQUE, HEADER_NBYTES, None, 0.3, 0.35)
    start = HEADER_NBYTES
    ratios = rng.beta(2, 8, len(TEMPLATE))
    errors = rng.normal(0, 0.01, len(TEMPLATE))
    drawn = zip(TEMPLATE, tensors, ratios.tolist(), errors.tolist(), strict=True)
    for (name, shape), (tensor_id, base_id), ratio, error in drawn:
        nbytes = 2 * int(np.prod(shape))
        layout.append({"tensor_id": tensor_id, "nbytes": nbytes})
        rows.tensors.append({**place, "name": name, "part": None, "tensor_id": tensor_id,
                             "dtype": "BF16", "shape": shape, "start": start,
                             "nbytes": nbytes})  # fmt: skip
        if tensor_id not in known:
            rows.fingerprints.append({"tensor_id": tensor_id, "dtype": "BF16", "shape": shape,
                                      "nbytes": nbytes, "sketch": None, "standalone_ratio": 0.66,
                                      "plane_entropy": [7.9, 2.6]})  # fmt: skip
        reached = ratio if base_id else 0.66 + error
        _add_blob(rows, known, tensor_id, "BF16", nbytes, base_id, reached, reached - error)
        start += nbytes
    rows.files.append({**place, "refs": ["main"], "nbytes": start, "sha256": 2 * _hash(-seed),
                       "source_tag": "", "layout": layout})  # fmt: skip


def _add_blob(
    rows: Rows,
    known: set[str],
    tensor_id: str,
    dtype: str,
    nbytes: int,
    base_id: str | None,
    reached: float,
    predicted: float,
) -> None:
    if tensor_id in known:
        return
    known.add(tensor_id)
    codec = "zstd" if dtype == OPAQUE else "ulprow" if base_id else "zipnn"
    role = "opaque" if dtype == OPAQUE else "delta" if base_id else "alone"
    text = tensor_id[:32]
    rows.blobs.append({"tensor_id": tensor_id, "sha256": 2 * text, "dtype": dtype,
                       "raw_nbytes": nbytes, "nbytes": 60 + int(nbytes * reached),
                       "codec": codec, "base_id": base_id, "checksum": text})  # fmt: skip
    rows.plans.append({"tensor_id": tensor_id, "dtype": dtype, "nbytes": nbytes, "role": role,
                       "base_id": base_id, "codec": codec, "predicted_ratio": max(predicted, 0.0),
                       "standalone_ratio": 0.66})  # fmt: skip


def pack(blobs: list[Row], run: int) -> int:
    """Give each blob its place in a pack; bytes of all packs."""
    offset = total = 0
    for number, blob in enumerate(blobs):
        if number % PACK_BLOBS == 0:
            total += offset
            offset = PACK_HEADER_NBYTES
        blob["pack"] = 2 * _hash(run * 10**6 + number // PACK_BLOBS)
        blob["offset"] = offset
        offset += blob["nbytes"]
    return total + offset


def tables_of(rows: Rows) -> dict[str, pa.Table]:
    """The tables of a run, those without rows too."""
    tables = {name: schema.empty_table() for name, schema in TABLES.items()}
    for name in ("files", "tensors", "blobs", "plans", "fingerprints"):
        tables[name] = pa.Table.from_pylist(getattr(rows, name), TABLES[name])
    with duckdb.connect() as connection:
        views = {"taken_files": "files", "run_plans": "plans", "run_blobs": "blobs"}
        for view, name in views.items():
            connection.register(view, tables[name])
        tables["savings"] = summarise(connection)
    return tables


def simulate(store: str, n_tensors: int) -> int:
    """Write and commit all runs; the number of repositories."""
    objects = open_or_create(store, SketchSettings()).objects
    count = -(-n_tensors // len(TEMPLATE))
    per_run = -(-count // RUNS)
    known: set[str] = set()
    rows = Rows()
    for number, (repo, tensors) in enumerate(models(count, seed=7), start=1):
        add_model(rows, known, repo, tensors, seed=number)
        if number % per_run == 0 or number == count:
            run = -(-number // per_run)
            run_id = f"202501{run:02d}T000000.000000Z"
            nbytes = pack(rows.blobs, run)
            tables = tables_of(rows)
            parts = write_tables(objects, run_id, tables)
            counts = {
                "bytes_in": sum(file["nbytes"] for file in rows.files),
                "bytes_stored": nbytes,
                "bytes_catalog": sum(part.nbytes for some in parts.values() for part in some),
                "stages": {
                    stage: {"seconds": seconds * per_run, "task_seconds": 40.0 * seconds * per_run}
                    for stage, seconds in (("scan", 0.6), ("plan", 0.05), ("encode", 1.1))
                },
            }
            commit(objects, RunMarker(run_id, "ingest", "0", {}, counts, parts))
            rows = Rows()
    return count


def main() -> None:
    """Write the catalog."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.simulate_catalog", description=__doc__
    )
    parser.add_argument("--tensors", type=int, default=1_000_000)
    parser.add_argument("--store", type=Path, required=True, help="a new directory")
    given = parser.parse_args()
    count = simulate(str(given.store), given.tensors)
    print(f"{count:,} repositories, {count * len(TEMPLATE):,} tensors, {RUNS} runs")


if __name__ == "__main__":
    main()
