"""From a hub to what it would take, with an error bar."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tstore.errors import EmptyHubError
from tstore.estimate.blocks import Sampled, read_blocks
from tstore.estimate.clusters import Member, make_frame
from tstore.estimate.encoding import Encoded, encode_blocks
from tstore.estimate.sampling import Stratum, draw_sample, half_width, mean_and_variance
from tstore.hub.snapshot import list_hub
from tstore.settings import GIB, MIB, PlanSettings, SketchSettings, TaskSettings

DEFAULT_SHARE = 0.05
MIN_SAMPLE = 64 * MIB
"""Read at least, or all of a smaller hub."""
MAX_SAMPLE = 4 * GIB
"""Read at most where no sample is asked for: beyond, more bytes tell little more."""
ENTRY_NBYTES = 260
"""What a pack says of each of its blobs: id, offsets, codec, base, checksum."""
MODEL_ERROR = 0.004
"""Stored/raw by which blocks may mislead however many there are: blobs of whole tensors are a bit
smaller, a base is chosen for a block by itself."""


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
class Part:
    """Prediction for the tensors of one dtype, for opaque bytes, or for all.

    Attributes
    ----------
    nbytes : int
        Raw bytes; exact.
    ratio, error : float
        Stored/raw, and half of its 95 % interval.
    dedup, alone, delta : float
        Shares of the raw bytes that are stored elsewhere already, without a base, and as deltas.
    """

    nbytes: int
    ratio: float
    error: float
    dedup: float
    alone: float
    delta: float

    @property
    def stored(self) -> int:
        """Predicted bytes in packs."""
        return round(self.ratio * self.nbytes)


@dataclass(frozen=True)
class Estimate:
    """Prediction for a hub.

    Attributes
    ----------
    files : int
        Files of the hub.
    total : Part
        What could be listed and read.
    dtypes : dict of str to Part
        Largest first.
    sampled : int
        Bytes read, beside headers.
    unreadable : tuple of str
        Sources that could not be read.
    """

    files: int
    total: Part
    dtypes: dict[str, Part]
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
    wanted = options.sample_nbytes(frame.nbytes)
    strata = draw_sample(frame.clusters, wanted, sketch.min_nbytes, options.seed)
    sampled = read_blocks((draw for stratum in strata for draw in stratum.draws), sketch)
    encoded = encode_blocks(sampled, options.plan, sketch)
    said = [(stratum, _values(stratum, sampled, encoded)) for stratum in strata]
    dtypes = {
        dtype: _combined([one for one in said if one[0].dtype == dtype])
        for dtype in {stratum.dtype: None for stratum in strata}
    }
    return Estimate(
        files=frame.files,
        total=_combined(said),
        dtypes=dict(sorted(dtypes.items(), key=lambda found: -found[1].nbytes)),
        sampled=sampled.nbytes,
        unreadable=tuple(sorted({*frame.unreadable, *sampled.unreadable})),
    )


def _values(stratum: Stratum, sampled: Sampled, encoded: dict[str, Encoded]) -> NDArray[np.float64]:
    """Stored/raw, and the shares of dedup, alone and delta, as each draw has them: (4, draws)."""
    return np.array([_of_members(sampled.members[draw.key], encoded) for draw in stratum.draws]).T


def _of_members(
    members: Iterable[tuple[Member, str]], encoded: dict[str, Encoded]
) -> tuple[float, float, float, float]:
    """What a block of all members of a cluster takes; who comes first pays for its duplicates."""
    raw = stored = alone = delta = 0.0
    seen = set[str]()
    for member, name in members:
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


def _combined(said: Sequence[tuple[Stratum, NDArray[np.float64]]]) -> Part:
    """Sum of some strata."""
    nbytes = sum(stratum.nbytes for stratum, _ in said)
    means, variances = np.zeros(4), []
    for stratum, values in said:
        weight = stratum.nbytes / nbytes
        found = [mean_and_variance(stratum, row) for row in values]
        means += weight * np.array([mean for mean, _ in found])
        entries = ENTRY_NBYTES * stratum.n_members * (1 - found[1][0])
        means[0] += entries / nbytes
        variances.append(weight**2 * found[0][1])
    error = half_width(variances, [len(stratum.draws) for stratum, _ in said])
    ratio, dedup, alone, delta = means.tolist()
    return Part(nbytes, ratio, math.hypot(error, MODEL_ERROR), dedup, alone, delta)
