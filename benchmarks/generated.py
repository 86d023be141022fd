"""Weights and fine-tunes that look like trained ones, for a machine without a hub.

A small encoder of 14 M parameters. What matters to a codec is there: rows of different spread,
heavy tails, steps that differ by row and hardly depend on the weight, and an embedding of which
most rows were touched by nothing but weight decay.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from benchmarks.data import ByteArray, Pair, Tensor

Floats = npt.NDArray[np.float32]

WIDTH, LAYERS, VOCABULARY, POSITIONS = 384, 4, 16_384, 512
TOUCHED = 0.25
"""Share of the rows of the embedding whose tokens occur in the data of a fine-tune."""

_SEED = 20240923
_STEPS = {
    "generated, small steps": 2e-5,
    "generated, large steps": 2e-4,
    "generated, tiny steps": 3e-6,
}


def generated_pairs() -> list[Pair]:
    """Return three bf16 fine-tunes and an f32 one of the same base; the same on every call."""
    base = dict(_base())
    tuned = {name: _tuned(base, step, seed) for seed, (name, step) in enumerate(_STEPS.items())}
    pairs = [_pair(name, weights, base, "BF16") for name, weights in tuned.items()]
    first = next(iter(tuned))
    return [*pairs, _pair(f"{first}, f32", tuned[first], base, "F32")]


def bf16_bytes(values: Floats) -> ByteArray:
    """Return finite `values` rounded to the nearest bf16, ties to even, as bytes."""
    bits = np.ascontiguousarray(values).reshape(-1).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return rounded.astype(np.uint16).view(np.uint8)


def _shapes() -> Iterator[tuple[str, tuple[int, ...]]]:
    yield "embedding", (VOCABULARY, WIDTH)
    yield "positions", (POSITIONS, WIDTH)
    for layer in range(LAYERS):
        for name in ("query", "key", "value", "output"):
            yield f"{layer}.{name}", (WIDTH, WIDTH)
        yield f"{layer}.up", (4 * WIDTH, WIDTH)
        yield f"{layer}.down", (WIDTH, 4 * WIDTH)
        yield f"{layer}.bias", (4 * WIDTH,)
        yield f"{layer}.norm", (WIDTH,)


def _base() -> Iterator[tuple[str, Floats]]:
    rng = np.random.default_rng(_SEED)
    for name, shape in _shapes():
        values = rng.standard_normal(shape, np.float32)
        if name.endswith("norm"):
            yield name, np.float32(1) + np.float32(0.1) * values
            continue
        spread = np.exp(np.float32(0.3) * rng.standard_normal((*shape[:-1], 1), np.float32))
        tails = np.sqrt(rng.standard_gamma(4, shape, np.float32) / np.float32(4))
        yield name, np.float32(0.05) * spread * values * tails


def _tuned(base: dict[str, Floats], step: float, seed: int) -> dict[str, Floats]:
    """Return `base` after steps of about `step` and a few times more in some rows."""
    rng = np.random.default_rng((_SEED, seed))
    tuned = {}
    for name, values in base.items():
        rows = np.exp(rng.standard_normal((*values.shape[:-1], 1), np.float32))
        if name == "embedding":
            rows *= rng.random(rows.shape, np.float32) < TOUCHED
        change = rng.standard_normal(values.shape, np.float32) * rows
        decayed = values * np.float32(1 - step)
        tuned[name] = decayed + np.float32(4 * step) * change
    return tuned


def _pair(name: str, tuned: dict[str, Floats], base: dict[str, Floats], dtype: str) -> Pair:
    def raw(values: Floats) -> ByteArray:
        return bf16_bytes(values) if dtype == "BF16" else values.reshape(-1).view(np.uint8)

    return Pair(
        name,
        [Tensor(dtype, values.shape, raw(values), raw(base[key])) for key, values in tuned.items()],
    )
