"""Between elements and byte planes: plane k holds byte k (little-endian) of every element."""

import numpy as np
from numba import njit


@njit(nogil=True, cache=True)
def split_planes(words, rotate, planes):  # type: ignore[no-untyped-def]
    """Write the bytes of `words` to `planes`.

    Parameters
    ----------
    words : uint16, uint32 or uint64 (n,)
    rotate : bool
        Rotate each word left by one bit first. The sign of a float goes to the bottom, and the
        exponent of a BF16 or F32 then fills the top byte exactly.
    planes : uint8 (w, n)
        Filled; w is the size of a word in bytes.
    """
    top = np.uint64(8 * words.itemsize - 1)
    for k in range(planes.shape[0]):
        plane = planes[k]
        shift = np.uint64(8 * k)
        if rotate:
            for i in range(words.size):
                word = np.uint64(words[i])
                word = (word << np.uint64(1)) | (word >> top)
                plane[i] = np.uint8(word >> shift)
        else:
            for i in range(words.size):
                plane[i] = np.uint8(np.uint64(words[i]) >> shift)


@njit(nogil=True, cache=True)
def merge_planes(planes, rotate, words):  # type: ignore[no-untyped-def]
    """Undo `split_planes`: fill `words` from `planes`; arguments as there."""
    for i in range(words.size):
        words[i] = planes[0, i]
    for k in range(1, planes.shape[0]):
        plane = planes[k]
        shift = np.uint64(8 * k)
        for i in range(words.size):
            words[i] |= np.uint64(plane[i]) << shift
    if rotate:
        top = np.uint64(8 * words.itemsize - 1)
        for i in range(words.size):
            word = np.uint64(words[i])
            words[i] = (word >> np.uint64(1)) | (word << top)


@njit(nogil=True, cache=True)
def has_zero_run(plane, length):  # type: ignore[no-untyped-def]
    """Say whether `plane`, uint8 (n,), has `length` (at least 1) zero bytes in a row.

    Every such run covers a position ``k * length - 1``, so only those are probed.
    """
    for probe in range(length - 1, plane.size, length):
        if plane[probe] != 0:
            continue
        first = probe
        while first > 0 and plane[first - 1] == 0:
            first -= 1
        end = probe + 1
        while end < plane.size and plane[end] == 0 and end - first < length:
            end += 1
        if end - first >= length:
            return True
    return False
