"""Identities: what makes two tensors the same, and which paths are safe.

A tensor is identified by its raw bytes, its dtype and its shape. The text form
``<xxh3_128 hex>:<dtype>[<dims>]`` is the ``tensor_id`` of every table and the name of the blob in
its pack, e.g. ``0f3a…9c:BF16[384,384]``; a scalar is ``…:F32[]``.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import TypeAlias

import numpy as np
import xxhash
from numpy.typing import NDArray

from tstore.errors import UnsafePathError

Buffer: TypeAlias = bytes | bytearray | memoryview | NDArray[np.uint8]

OPAQUE = "OPAQUE"
"""dtype of bytes that belong to no tensor: headers, text files, files that cannot be parsed."""

_TENSOR_ID = re.compile(r"([0-9a-f]{32}):([A-Z0-9_]+)\[((?:\d+(?:,\d+)*)?)\]")


def content_hash(data: Buffer) -> str:
    """xxh3_128 of the raw bytes as 32 hex digits (TStore, §4.1 TensorID)."""
    return xxhash.xxh3_128_hexdigest(data)


def sha256(*parts: Buffer) -> str:
    """SHA-256 of the parts one after the other, as 64 hex digits."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def make_tensor_id(digest: str, dtype: str, shape: Sequence[int]) -> str:
    """Text form of (content hash, dtype, shape)."""
    return f"{digest}:{dtype}[{','.join(map(str, shape))}]"


def parse_tensor_id(tensor_id: str) -> tuple[str, str, tuple[int, ...]]:
    """Content hash, dtype and shape of a tensor id; ``ValueError`` when it is not one."""
    match = _TENSOR_ID.fullmatch(tensor_id)
    if match is None:
        raise ValueError(f"expected <32 hex>:<dtype>[<dims>], found {tensor_id!r}")
    digest, dtype, dims = match.groups()
    return digest, dtype, tuple(int(d) for d in dims.split(",")) if dims else ()


def check_relative_path(path: str) -> PurePosixPath:
    """A relative POSIX path that stays below its root.

    Raises
    ------
    UnsafePathError
        The path is empty or absolute, or has a ``..``, ``.``, empty or NUL component, or a
        backslash, or, on Windows, a drive letter.
    """
    parts = path.split("/")
    bad = (
        not path
        or any(part in ("", ".", "..") for part in parts)
        or "\0" in path
        or "\\" in path
        or (os.name == "nt" and ":" in path)
    )
    if bad:
        raise UnsafePathError(
            f"expected a relative path inside the destination, found {path!r}; it is refused",
            path=path,
        )
    return PurePosixPath(path)
