"""From a hub to what it would take, with an error bar."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tstore.errors import EmptyHubError
from tstore.estimate.blocks import Sampled, read_blocks
from tstore.estimate.clusters import make_frame
from tstore.estimate.encoding import Encoded, encode_blocks
from tstore.estimate.sampling import Stratum, draw_sample, half_width, mean_and_variance
from tstore.hub.snapshot import list_hub
from tstore.settings import GIB, MIB, PlanSettings, SketchSettings, TaskSettings

DEFAULT_SHARE = 0.05
MIN_SAMPLE = 64 * MIB
"""Read at least, or all of a smaller hub."""
MAX_SAMPLE = 4 * GIB
"""Read at most where no sample is asked for: beyond, more bytes tell little more."""


@dataclass(frozen=True)
class EstimateOptions:
    """What to look at.

    Attributes
    ----------
    hub : str
        Directory or ``s3://bucket/prefix``.
    include, exclude : tuple of str
        Patterns; see `tstore.hub.snapshot.list_hub`.
    sample : float or None
        Share of the hub's bytes if at most 1, else bytes; None for `DEFAULT_SHARE` within limits.
    seed : int
    plan : PlanSettings
        Codecs.
    """

    hub: str
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    sample: float | None = None
    seed: int = 0
    plan: PlanSettings = field(default_factory=PlanSettings)

    def sample_nbytes(self, total: int) -> float:
        """Bytes to read of a hub of `total` bytes."""
        if self.sample is None:
            return min(max(DEFAULT_SHARE * total, MIN_SAMPLE), MAX_SAMPLE)
        return self.sample * total if self.sample <= 1 else self.sample


@dataclass(frozen=True)
class DtypeEstimate:
    """Prediction for one dtype, or for opaque bytes.

    Attributes
    ----------
    dtype : str
    nbytes : int
        Raw bytes; exact.
    ratio, error : float
        Stored/raw, and half of its 95 % interval.
    dedup, alone, delta : float
        Shares of the raw bytes that are stored elsewhere already, without a base, and as deltas.
    """

    dtype: str
    nbytes: int
    ratio: float
    error: float
    dedup: float
    alone: float
    delta: float


@dataclass(frozen=True)
class Estimate:
    """Prediction for a hub.

    Attributes
    ----------
    nbytes, files : int
        Raw bytes of what could be listed and read, and the number of files.
    ratio, error : float
        Stored/raw, and half of its 95 % interval.
    stored, after_dedup : int
        Predicted bytes.
    dedup, alone, delta : float
        Shares of the raw bytes; see `DtypeEstimate`.
    dtypes : tuple of DtypeEstimate
        Largest first.
    sampled : int
        Bytes read, beside headers.
    unreadable : tuple of str
        Sources that could not be read.
    """

    nbytes: int
    files: int
    ratio: float
    error: float
    stored: int
    after_dedup: int
    dedup: float
    alone: float
    delta: float
    dtypes: tuple[DtypeEstimate, ...]
    sampled: int
    unreadable: tuple[str, ...]


def estimate_hub(options: EstimateOptions) -> Estimate:
    """Predict what an ingest of a hub into an empty store would store; nothing is written.

    The catalog is not in it.

    Raises
    ------
    HubNotFoundError, HubLayoutError
    EmptyHubError
        Nothing to read was found.
    """
    sketch = SketchSettings()
    snapshot = list_hub(options.hub, include=options.include, exclude=options.exclude)
    frame = make_frame(snapshot.files, TaskSettings())
    if not frame.nbytes:
        raise EmptyHubError(f"expected files with content in {options.hub}, found none")
    strata = draw_sample(frame.clusters, options.sample_nbytes(frame.nbytes), options.seed)
    sampled = read_blocks((draw for stratum in strata for draw in stratum.draws), sketch)
    encoded = encode_blocks(sampled, options.plan, sketch)
    values = {stratum.dtype: _values(stratum, sampled, encoded) for stratum in strata}
    dtypes = sorted(
        (_of_dtype(stratum, values[stratum.dtype]) for stratum in strata),
        key=lambda found: (-found.nbytes, found.dtype),
    )
    return _total(frame.nbytes, frame.files, strata, values, dtypes, sampled, frame.unreadable)


def _values(stratum: Stratum, sampled: Sampled, encoded: dict[str, Encoded]) -> NDArray[np.float64]:
    """Stored/raw, and the shares of dedup, alone and delta, of each draw: (4, draws)."""
    found = {}
    for draw in stratum.draws:
        key = id(draw.cluster), draw.block
        if key not in found:
            found[key] = _of_members(draw.cluster.nbytes, sampled, encoded, key)
    return np.array([found[id(draw.cluster), draw.block] for draw in stratum.draws]).T


def _of_members(
    nbytes: int, sampled: Sampled, encoded: dict[str, Encoded], key: tuple[int, int]
) -> tuple[float, float, float, float]:
    """What a block of all members of a cluster takes; who comes first pays for its duplicates."""
    raw = stored = alone = delta = 0.0
    seen = set[str]()
    for member, name in sampled.members[key]:
        if name not in encoded:
            continue
        raw += member.nbytes * member.copies
        if name in seen:
            continue
        seen.add(name)
        stored += encoded[name].ratio * member.nbytes
        if encoded[name].is_delta:
            delta += member.nbytes
        else:
            alone += member.nbytes
    if not raw:  # nothing of it could be read: as if it were stored as it is
        return 1.0, 0.0, 1.0, 0.0
    return stored / raw, 1 - (alone + delta) / raw, alone / raw, delta / raw


def _of_dtype(stratum: Stratum, values: NDArray[np.float64]) -> DtypeEstimate:
    ratio, variance = mean_and_variance(stratum, values[0])
    counts = {stratum.dtype: len(stratum.draws)}
    return DtypeEstimate(
        dtype=stratum.dtype,
        nbytes=stratum.nbytes,
        ratio=ratio,
        error=half_width({stratum.dtype: variance}, counts),
        **{
            name: mean_and_variance(stratum, row)[0]
            for name, row in zip(("dedup", "alone", "delta"), values[1:], strict=True)
        },
    )


def _total(
    nbytes: int,
    files: int,
    strata: Sequence[Stratum],
    values: dict[str, NDArray[np.float64]],
    dtypes: Sequence[DtypeEstimate],
    sampled: Sampled,
    unreadable: Sequence[str],
) -> Estimate:
    def mean(name: str) -> float:
        return sum(getattr(found, name) * found.nbytes for found in dtypes) / nbytes

    variances = {
        stratum.dtype: mean_and_variance(stratum, values[stratum.dtype][0])[1]
        * (stratum.nbytes / nbytes) ** 2
        for stratum in strata
    }
    ratio, dedup = mean("ratio"), mean("dedup")
    return Estimate(
        nbytes=nbytes,
        files=files,
        ratio=ratio,
        error=half_width(variances, {s.dtype: len(s.draws) for s in strata}),
        stored=round(ratio * nbytes),
        after_dedup=round((1 - dedup) * nbytes),
        dedup=dedup,
        alone=mean("alone"),
        delta=mean("delta"),
        dtypes=tuple(dtypes),
        sampled=sampled.nbytes,
        unreadable=tuple(sorted({*unreadable, *sampled.unreadable})),
    )
