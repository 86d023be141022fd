"""Between elements and byte planes: plane k holds byte k (little-endian) of every element."""

import numpy as np

from tstore_codecs.kernels.compiled import kernel
from tstore_codecs.kernels.fixed import cast, left, right

_LN2 = 0.6931471805599453

SAMPLE_BLOCK, SAMPLE_STEP = 32, 512
"""A sixteenth of a plane tells whether it is worth a look."""


@kernel
def _rotated(word, by, top):
    """Return `word` rotated left by `by` bits; ``by + top`` is its width."""
    return cast(left(word, by) | right(word, top), word)


@kernel
def split_planes(words, rotate, planes):
    """Write the bytes of `words` to `planes`.

    Parameters
    ----------
    words : uint8, uint16, uint32 or uint64 (n,)
    rotate : bool
        Rotate each word left by one bit first. The sign of a float goes to the bottom, and the
        exponent of a BF16 or F32 then fills the top byte exactly.
    planes : uint8 (w, n)
        Filled; w is the size of a word in bytes.
    """
    for k in range(planes.shape[0]):
        plane = planes[k]
        for i in range(words.size):
            word = words[i]
            shift = cast(8 * k, word)
            if rotate:
                word = _rotated(word, cast(1, word), cast(8 * words.itemsize - 1, word))
            plane[i] = np.uint8(right(word, shift))


@kernel
def merge_planes(planes, rotate, words):
    """Undo `split_planes`: fill `words` from `planes`; arguments as there."""
    last = planes.shape[0] - 1
    for k in range(last, -1, -1):
        plane = planes[k]
        for i in range(words.size):
            word = cast(plane[i], words[i])
            if k < last:
                word = cast(left(words[i], cast(8, word)) | word, word)
            if rotate and k == 0:
                word = _rotated(word, cast(8 * words.itemsize - 1, word), cast(1, word))
            words[i] = word


@kernel
def has_zero_run(plane, length):
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


@kernel
def zero_share(plane):
    """Return which share of a sample of `plane`, uint8 (n,) of `SAMPLE_BLOCK` or more, is 0."""
    zeros = samples = 0
    for at in range(0, plane.size - SAMPLE_BLOCK + 1, SAMPLE_STEP):
        for byte in plane[at : at + SAMPLE_BLOCK]:
            zeros += byte == 0
        samples += SAMPLE_BLOCK
    return zeros / samples


@kernel
def split_sparse(plane, masks, values):
    """Write which bytes of `plane`, uint8 (n,), are not 0, and those; return how many they are.

    Parameters
    ----------
    masks : uint8 (n / 8 rounded up,)
        Filled: bit k of byte i is set if ``plane[8 * i + k]`` is not 0.
    values : uint8 (>= n + 8,)
        Filled as far as there are any.
    """
    count = np.int64(0)
    whole = plane.size // 8
    for i in range(whole):
        eight = plane[8 * i : 8 * i + 8]
        any_set = np.uint8(0)
        for byte in eight:
            any_set |= byte
        mask = np.uint8(0)
        if any_set:
            for k in range(8):
                values[count] = eight[k]
                is_set = np.int64(eight[k] != 0)
                mask |= np.uint8(is_set << k)
                count += is_set
        masks[i] = mask
    if plane.size > 8 * whole:
        masks[whole] = 0
    for i in range(8 * whole, plane.size):
        if plane[i]:
            masks[whole] |= np.uint8(1 << (i - 8 * whole))
            values[count] = plane[i]
            count += 1
    return count


@kernel
def merge_sparse(masks, values, plane):
    """Undo `split_sparse`: fill `plane`.

    `values` has a byte for every bit of `masks` and 8 more; no bit lies beyond the plane.
    """
    count = np.int64(0)
    whole = plane.size // 8
    for i in range(whole):
        eight, mask = plane[8 * i : 8 * i + 8], np.int64(masks[i])
        if mask == 0:
            for k in range(8):
                eight[k] = 0
        else:
            for k in range(8):
                is_set = (mask >> k) & 1
                eight[k] = values[count] * np.uint8(is_set)
                count += is_set
    for i in range(8 * whole, plane.size):
        is_set = (np.int64(masks[whole]) >> (i - 8 * whole)) & 1
        plane[i] = values[count] * np.uint8(is_set)
        count += is_set


@kernel
def is_noise(plane, min_gain):
    """Say whether a sample of `plane`, uint8 (n,), promises less than half of `min_gain`.

    For m samples that miss 8 bits of entropy by e, the sum of their squared counts is about
    ``m + m**2 / 256 * (1 + 2 * ln(2) * e)``.
    """
    counts = np.zeros(256, np.int64)
    samples = np.int64(0)
    for at in range(0, plane.size - SAMPLE_BLOCK + 1, SAMPLE_STEP):
        for byte in plane[at : at + SAMPLE_BLOCK]:
            counts[byte] += 1
        samples += SAMPLE_BLOCK
    squares = (counts * counts).sum()
    excess = 256 * np.float64(squares - samples) / np.float64(samples * samples) - 1
    return excess < 8 * _LN2 * min_gain
