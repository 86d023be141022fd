"""Compile every kernel ahead of the work: ``python -m tstore.cluster.warm``.

numba compiles a kernel when it is first called and keeps the code beside the package or in
``NUMBA_CACHE_DIR``. All kernels take a core a minute or two; workers that find them there start at
full speed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

import tstore_codecs
from tstore.plan.costs import SketchCosts
from tstore.plan.flexsplit import assign
from tstore.plan.problem import Problem
from tstore.predict.models import entropy
from tstore.predict.tensorpred import Measured, fit
from tstore.settings import KIB, PlanSettings, SketchSettings
from tstore.sketch.layout import SketchLayout
from tstore.sketch.statistics import plane_entropies
from tstore.sketch.tensorsketch import build
from tstore_codecs.registry import CODECS

_DTYPES = ("F8_E4M3", "BF16", "F32", "F64")  # kernels are compiled by width
_NBYTES = 128 * KIB  # beyond what counts as small
_FAMILY = 64  # tensors to plan: for fewer, the first plan is the best


def warm_kernels() -> None:
    """Call every kernel that an ingest or a restore needs; a few seconds once all are compiled."""
    for dtype in _DTYPES:
        warm_tasks(dtype, tuple(CODECS))
    _plan(np.random.default_rng(0))


def warm_tasks(dtype: str, codecs: Sequence[str]) -> None:
    """Call the kernels that tasks need for tensors of one dtype, with these codecs."""
    rng = np.random.default_rng(0)
    base = _weights(rng, _NBYTES)
    target = _changed(rng, base, 0.1)
    plane_entropies(target, dtype)
    build(target, dtype, SketchSettings())
    for name in codecs:
        against = base if CODECS[name].needs_base else None
        blob = tstore_codecs.encode(target, dtype=dtype, codec=name, base=against)
        tstore_codecs.decode(blob, base=against)


def _weights(rng: np.random.Generator, nbytes: int) -> NDArray[np.uint8]:
    """Bytes of which every codec finds some to save: each second one has few values."""
    data = rng.integers(0, 256, nbytes, np.uint8)
    data[1::2] %= 8
    return data


def _changed(rng: np.random.Generator, base: NDArray[np.uint8], share: float) -> NDArray[np.uint8]:
    return base ^ (rng.random(base.size) < share).astype(np.uint8)


def _plan(rng: np.random.Generator) -> None:
    """Fit a predictor, and plan tensors each of which drifted away from one of the last four."""
    sketch, settings = SketchSettings(), PlanSettings()
    layout = SketchLayout.of("BF16", sketch)
    tensors = [_weights(rng, sketch.min_nbytes)]
    while len(tensors) < _FAMILY:
        near = tensors[-4:]
        tensors.append(_changed(rng, near[rng.integers(len(near))], 0.1 * rng.random()))
    nbytes, p = np.full(_FAMILY, sketch.min_nbytes), np.linspace(0, 0.5, _FAMILY)
    measured = Measured(p=np.tile(p, (len(layout.shares), 1)), ratio=entropy(p), nbytes=nbytes)
    predictor = fit("BF16", "ulprow", layout.shares, measured)
    sketches = np.stack([build(tensor, "BF16", sketch) for tensor in tensors])
    costs = SketchCosts(sketches, layout, nbytes, predictor)
    ids = np.arange(_FAMILY)
    costs.pairs(ids[1:], ids[:-1])
    standalone = np.full(_FAMILY - 1, 0.7)
    assign(Problem(tuple(map(str, ids)), 1, standalone, costs, settings.min_gain))


if __name__ == "__main__":
    warm_kernels()
