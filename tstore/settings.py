"""Every tunable of tstore, with its default and the reason for it."""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30


@dataclass(frozen=True)
class SketchSettings:
    """TensorSketch parameters; fixed when a store is created, since sketches must compare.

    Attributes
    ----------
    depth, width : int
        Rows and buckets per row; the width is a multiple of 16. 2 × 2,048 int16 are 8 KB per
        tensor, as much as the 2 × 1,024 int32 of the paper (Table 2).
    seed : int
        Seed of the hash family.
    min_nbytes : int
        Smaller tensors get no sketch and are stored standalone: a delta of them seldom saves
        what the sketch itself takes, some 4 KB in Parquet.
    """

    depth: int = 2
    width: int = 2048
    seed: int = 0x7573
    min_nbytes: int = 16 * KIB

    def __post_init__(self) -> None:
        if self.depth < 1 or self.width < 16 or self.width % 16:
            raise ValueError(
                "expected a depth of at least 1 and a width that is a multiple of 16, found "
                f"depth={self.depth}, width={self.width}"
            )


@dataclass(frozen=True)
class PlanSettings:
    """How bases and deltas are chosen.

    Attributes
    ----------
    delta_codec : str or None
        Codec of deltas; None plans no deltas at all.
    standalone_codec : str
        Codec of bases and of tensors without a base.
    opaque_codec : str
        Codec of bytes that belong to no tensor.
    min_gain : float
        A delta is used only when its predicted stored/raw ratio is at least this much below the
        standalone one: predictions err by about one point.
    pairs_per_model : int
        Pairs measured per (dtype, codec) to fit TensorPred, spread over the range of distances.
    measure_nbytes : int
        Bytes of a pair that are really encoded to measure its ratio (evenly spaced pieces).
    """

    delta_codec: str | None = "ulprow"
    standalone_codec: str = "zipnn"
    opaque_codec: str = "zstd"
    min_gain: float = 0.02
    pairs_per_model: int = 96
    measure_nbytes: int = 4 * MIB

    @classmethod
    def for_codec(cls, codec: str, *, needs_base: bool) -> PlanSettings:
        """Settings for the one codec a user names: for deltas, or for everything."""
        if needs_base:
            return cls(delta_codec=codec)
        return cls(delta_codec=None, standalone_codec=codec)


@dataclass(frozen=True)
class TaskSettings:
    """How work is cut into tasks.

    Attributes
    ----------
    scan_nbytes : int
        Raw bytes per scan task: small files are batched; a file that is larger, and a good part
        of the whole hub, is split by tensors.
    encode_nbytes : int
        Raw bytes per encode task, which is also the upper size of a pack's content
        (a single larger tensor gets a pack of its own).
    opaque_extent_nbytes : int
        Opaque bytes are cut at this size, so that a huge unparsable file streams.
    tensor_extent_nbytes : int
        Larger tensors are cut into parts of this size along their rows, each hashed, sketched and
        encoded by itself: memory depends on it, and a huge tensor is worked on by many cores.
    memory_factor : int
        Memory a task declares, as a multiple of its largest tensor: source, base, blob and
        the decoded copy that is compared.
    base_memory_nbytes : int
        What a worker takes before any data: interpreter, numba, pyarrow.
    base_cache_nbytes : int
        Decoded bases that a worker keeps from one encode task to the next.
    in_flight_nbytes : int
        Raw bytes per core that are handed to Ray at a time; several tasks' worth, so that none
        waits for the driver and an autoscaler sees that there is more to do.
    max_retries : int
        Times a shard is tried again after its worker was lost, or the object store did not
        answer. Wrong data is never retried.
    """

    scan_nbytes: int = 128 * MIB
    encode_nbytes: int = 128 * MIB
    opaque_extent_nbytes: int = 32 * MIB
    tensor_extent_nbytes: int = 128 * MIB
    memory_factor: int = 5
    base_memory_nbytes: int = 300 * MIB
    base_cache_nbytes: int = 128 * MIB
    in_flight_nbytes: int = 512 * MIB
    max_retries: int = 3


DUCKDB_MEMORY = "1GiB"
"""What the joins of the catalog may take; more goes to temporary files."""
LEASE_TTL_S = 60.0
"""A writer that has not renewed its lease for this long is taken for dead."""
LEASE_RENEW_S = 15.0
"""Four renewals fit into one expiry, so that a slow object store does not cost the lease."""
ABANDONED_AFTER_S = 3600.0
"""A half-written object this old has no living writer: a pack takes seconds."""
