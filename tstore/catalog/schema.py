"""Columns of every catalog table. A change here raises `SCHEMA_VERSION`.

Sizes are bytes; ratios are stored/raw, lower is better; each table also has
the column `run`, the id of the run that added the row.
"""

from __future__ import annotations

import pyarrow as pa

SCHEMA_VERSION = 4


def _field(name: str, kind: pa.DataType, doc: str, *, nullable: bool = False) -> pa.Field:
    return pa.field(name, kind, nullable=nullable, metadata={"doc": doc})


_SHAPE = pa.list_(pa.int64())
_OCCURRENCE = [
    _field("repo", pa.string(), "repository id, e.g. org/name"),
    _field("revision", pa.string(), "commit of a Hugging Face cache, else main"),
]
_PART = _field(
    "part", pa.int32(), "number of the part of a tensor that was cut, from 0", nullable=True
)
_LAYOUT = pa.list_(
    pa.struct(
        [
            pa.field("tensor_id", pa.string(), nullable=False),
            pa.field("nbytes", pa.int64(), nullable=False),
        ]
    )
)

FILES = pa.schema(
    [
        *_OCCURRENCE,
        _field("refs", pa.list_(pa.string()), "names that point at the revision, e.g. main"),
        _field("path", pa.string(), "path inside the repository"),
        _field("nbytes", pa.int64(), "size of the file"),
        _field("sha256", pa.string(), "SHA-256 of the whole file, hex"),
        _field("source_tag", pa.string(), "size, times and inode when it was read"),
        _field("layout", _LAYOUT, "extents that give the file, in order"),
    ]
)
TENSORS = pa.schema(
    [
        *_OCCURRENCE,
        _field("path", pa.string(), "file inside the repository"),
        _field("name", pa.string(), "name in the file's header"),
        _PART,
        _field("tensor_id", pa.string(), "xxh3_128 of the raw bytes, dtype and shape"),
        _field("dtype", pa.string(), "safetensors dtype"),
        _field("shape", _SHAPE, "dimensions, of the part if there is one"),
        _field("start", pa.int64(), "offset in the file"),
        _field("nbytes", pa.int64(), "raw bytes"),
    ]
)
FINGERPRINTS = pa.schema(
    [
        _field("tensor_id", pa.string(), "unique tensor"),
        _field("dtype", pa.string(), "safetensors dtype"),
        _field("shape", _SHAPE, "dimensions"),
        _field("nbytes", pa.int64(), "raw bytes"),
        _field(
            "sketch", pa.list_(pa.int16()), "TensorSketch, planes × depth × buckets", nullable=True
        ),
        _field("plane_entropy", pa.list_(pa.float32()), "bits per byte of each byte plane"),
        _field("standalone_ratio", pa.float64(), "predicted ratio without a base"),
    ]
)
PAIRS = pa.schema(
    [
        _field("dtype", pa.string(), "dtype of both tensors"),
        _field("codec", pa.string(), "delta codec that was measured"),
        _field("target_id", pa.string(), "tensor that was encoded"),
        _field("base_id", pa.string(), "tensor that it was encoded against"),
        _field("nbytes", pa.int64(), "raw bytes that were encoded"),
        _field("distance", pa.float64(), "share of differing bits, from the sketches"),
        _field("group_distance", pa.list_(pa.float64()), "the same per bit-plane group"),
        _field("ratio", pa.float64(), "measured ratio"),
    ]
)
PLANS = pa.schema(
    [
        _field("tensor_id", pa.string(), "unique tensor or opaque extent"),
        _field("dtype", pa.string(), "safetensors dtype or OPAQUE"),
        _field("nbytes", pa.int64(), "raw bytes"),
        _field("role", pa.string(), "base, delta, alone or opaque"),
        _field("base_id", pa.string(), "base of a delta", nullable=True),
        _field("codec", pa.string(), "codec to use"),
        _field("predicted_ratio", pa.float64(), "predicted ratio of this choice", nullable=True),
        _field("standalone_ratio", pa.float64(), "predicted ratio alone", nullable=True),
    ]
)
BLOBS = pa.schema(
    [
        _field("tensor_id", pa.string(), "what the blob decodes to; the newest run wins"),
        _field("sha256", pa.string(), "SHA-256 of the decoded bytes, hex"),
        _field("dtype", pa.string(), "safetensors dtype or OPAQUE"),
        _field("raw_nbytes", pa.int64(), "decoded size"),
        _field("pack", pa.string(), "pack id: SHA-256 of the pack file"),
        _field("offset", pa.int64(), "first byte in the pack file"),
        _field("nbytes", pa.int64(), "encoded size"),
        _field("codec", pa.string(), "codec that was used"),
        _field("base_id", pa.string(), "tensor that decoding needs", nullable=True),
        _field("checksum", pa.string(), "xxh3_128 of the encoded bytes, hex"),
    ]
)
REJECTS = pa.schema(
    [
        *_OCCURRENCE,
        _field("path", pa.string(), "file inside the repository"),
        _field("nbytes", pa.int64(), "size of the file, 0 if unknown"),
        _field("reason", pa.string(), "name of the failed check"),
        _field("message", pa.string(), "expected, found, what to do"),
        _field("stored", pa.bool_(), "kept as opaque bytes"),
    ]
)
SAVINGS = pa.schema(
    [
        *_OCCURRENCE,
        _field("dtype", pa.string(), "safetensors dtype or OPAQUE"),
        _field("role", pa.string(), "base, delta, alone or opaque"),
        _field("codec", pa.string(), "codec that was used"),
        _field("n_extents", pa.int64(), "occurrences, duplicates included"),
        _field("bytes_in", pa.int64(), "raw bytes of all occurrences"),
        _field("bytes_after_dedup", pa.int64(), "raw bytes that this run stored first"),
        _field("bytes_predicted", pa.int64(), "predicted stored bytes of those"),
        _field("bytes_stored", pa.int64(), "stored bytes of those"),
    ]
)
REMOVALS = pa.schema(
    [
        *_OCCURRENCE,
        _field("removed", pa.bool_(), "true: removed; false: taken back"),
    ]
)
DROPPED_PACKS = pa.schema(
    [
        _field("pack", pa.string(), "pack id that was given up for good"),
        _field("nbytes", pa.int64(), "size of the pack file"),
    ]
)

TABLES: dict[str, pa.Schema] = {
    "files": FILES,
    "tensors": TENSORS,
    "fingerprints": FINGERPRINTS,
    "pairs": PAIRS,
    "plans": PLANS,
    "blobs": BLOBS,
    "rejects": REJECTS,
    "savings": SAVINGS,
    "removals": REMOVALS,
    "dropped_packs": DROPPED_PACKS,
}
SORT_KEYS: dict[str, list[str]] = {
    "files": ["repo", "revision", "path"],
    "tensors": ["repo", "revision", "path", "start", "name"],
    "fingerprints": ["dtype", "shape", "tensor_id"],
    "pairs": ["dtype", "codec", "target_id", "base_id"],
    "plans": ["tensor_id"],
    "blobs": ["tensor_id"],
    "rejects": ["repo", "revision", "path"],
    "savings": ["repo", "revision", "dtype", "role", "codec"],
    "removals": ["repo", "revision"],
    "dropped_packs": ["pack"],
}
"""Rows are sorted by what they are looked up by, so that row-group statistics prune."""

_EXTENT = [
    _field("tensor_id", pa.string(), "content hash, dtype and shape"),
    _field("dtype", pa.string(), "safetensors dtype or OPAQUE"),
    _field("shape", _SHAPE, "dimensions"),
    _field("nbytes", pa.int64(), "raw bytes"),
]
SOURCES = pa.schema(
    [
        _field("source", pa.string(), "file that was read"),
        _field("sha256", pa.string(), "of the file, hex; null from a partial read", nullable=True),
        _field("reason", pa.string(), "failed check, if any", nullable=True),
        _field("message", pa.string(), "its message", nullable=True),
        _field("readable", pa.bool_(), "false: nothing of the file may be used"),
    ]
)
EXTENTS = pa.schema(
    [
        _field("source", pa.string(), "file that was read"),
        _field("index", pa.int32(), "position among the extents of the file"),
        _field("name", pa.string(), "tensor name; null for opaque bytes", nullable=True),
        _PART,
        *_EXTENT,
        _field("start", pa.int64(), "offset in the file"),
        _field("sha256", pa.string(), "SHA-256 of the extent, hex"),
        *(FINGERPRINTS.field(name) for name in ("sketch", "plane_entropy")),
        _field("standalone_ratio", pa.float64(), "predicted ratio without a base", nullable=True),
    ]
)
FAILURES = pa.schema(
    [
        _field("tensor_id", pa.string(), "what could not be encoded"),
        _field("source", pa.string(), "file that it was to be read from"),
        _field("reason", pa.string(), "failed check"),
        _field("message", pa.string(), "its message"),
    ]
)
PROBLEMS = pa.schema([_field("problem", pa.string(), "what is wrong, in one line")])

STAGED_TABLES: dict[str, pa.Schema] = {
    "sources": SOURCES,
    "extents": EXTENTS,
    "pairs": PAIRS,
    "plans": PLANS,
    "blobs": BLOBS,
    "failures": FAILURES,
    "problems": PROBLEMS,
}
"""Rows that the tasks of an unfinished run leave for its driver."""
