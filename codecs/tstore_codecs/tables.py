"""Frequency tables from and to bytes. FORMAT.md, "Frequency table"."""

import numpy as np
import numpy.typing as npt

from tstore_codecs.buffers import ByteArray
from tstore_codecs.errors import CorruptBlobError
from tstore_codecs.kernels import freqs as kernels

Freqs = npt.NDArray[np.uint32]

_FAULTS = {
    kernels.TABLE_ENDS_EARLY: "the frequency table ends early",
    kernels.TABLE_NOT_CANONICAL: "the frequency table is not in its shortest form",
    kernels.TABLE_WRONG_SUM: "the frequencies do not sum to 4096",
}


def normalised(counts: npt.NDArray[np.int64]) -> Freqs:
    """Return frequencies, uint32 (256,) with sum 4096, for `counts` (up to 256, not all 0)."""
    freqs = np.zeros(256, np.uint32)
    kernels.normalise(counts, freqs)
    return freqs


def write_table(freqs: Freqs) -> bytes:
    """Return the table `freqs`, uint32 (256,), as bytes."""
    table = np.empty(kernels.MAX_TABLE_NBYTES, np.uint8)
    return table[: kernels.write_table(freqs, table)].tobytes()


def read_table(data: ByteArray) -> tuple[Freqs, int]:
    """Return the table that starts `data`, and how many bytes it takes.

    Raises
    ------
    CorruptBlobError
        If `data` does not start with what `write_table` writes.
    """
    freqs = np.empty(256, np.uint32)
    nbytes = kernels.read_table(data, freqs)
    if nbytes in _FAULTS:
        raise CorruptBlobError(f"bad rANS stream: {_FAULTS[nbytes]}")
    return freqs, nbytes
