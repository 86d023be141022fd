"""Real sizes of blobs, encoded once and remembered on disk."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import tstore_codecs
from benchmarks.planning.hub import UniqueTensor

ALONE = "zipnn"
"""Codec of tensors without a base."""

Blob = tuple[str, str | None, str]
"""Target id, base id (None when stored alone) and codec."""


class Sizes:
    """What the codecs really make of tensors.

    Parameters
    ----------
    tensors : mapping of str to UniqueTensor
        By id.
    cache : Path
        Folder of the file ``sizes.csv``, which only grows. It knows nothing of the version of a
        codec: remove it when one has changed.
    """

    def __init__(self, tensors: Mapping[str, UniqueTensor], cache: Path) -> None:
        self._tensors = tensors
        self._file = cache / "sizes.csv"
        self._known: dict[Blob, int] = {}
        if self._file.exists():
            with self._file.open(newline="") as file:
                for target, base, codec, nbytes in csv.reader(file):
                    self._known[target, base or None, codec] = int(nbytes)

    def alone(self, targets: Iterable[str]) -> dict[str, int]:
        """Bytes of each tensor without a base."""
        targets = list(targets)
        found = self.measured((target, None, ALONE) for target in targets)
        return dict(zip(targets, found, strict=True))

    def measured(self, blobs: Iterable[Blob]) -> list[int]:
        """Bytes of each blob; those that are not known yet are encoded, on all processors."""
        blobs = list(blobs)
        missing = [blob for blob in dict.fromkeys(blobs) if blob not in self._known]
        if missing:
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                found = dict(zip(missing, pool.map(self._encode, missing), strict=True))
            self._known.update(found)
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with self._file.open("a", newline="") as file:
                csv.writer(file, lineterminator="\n").writerows(
                    (target, base or "", codec, nbytes)
                    for (target, base, codec), nbytes in found.items()
                )
        return [self._known[blob] for blob in blobs]

    def _encode(self, blob: Blob) -> int:
        target_id, base_id, codec = blob
        target = self._tensors[target_id]
        base = None if base_id is None else self._tensors[base_id].read()
        return len(
            tstore_codecs.encode(
                target.read(), dtype=target.dtype, codec=codec, shape=target.shape, base=base
            )
        )
