"""Between elements and byte planes: plane k holds byte k (little-endian) of every element."""

import numpy as np

from tstore_codecs.kernels.compiled import kernel
from tstore_codecs.kernels.fixed import cast, left, right

ZERO_BLOCK_NBYTES = 64

NOISE_BLOCK, NOISE_STEP = 32, 256
"""An eighth of a plane tells whether it is worth a look."""


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
def count_zero_blocks(plane):
    """Return how many whole blocks of `ZERO_BLOCK_NBYTES` in `plane`, uint8 (n,), are zeros."""
    blocks = 0
    for at in range(0, plane.size - ZERO_BLOCK_NBYTES + 1, ZERO_BLOCK_NBYTES):
        seen = np.uint8(0)
        for byte in plane[at : at + ZERO_BLOCK_NBYTES]:
            seen |= byte
        blocks += seen == 0
    return blocks


@kernel
def is_noise(plane):
    """Say whether a sample of `plane`, uint8 (n,), looks like random bytes.

    For m samples that miss 8 bits of entropy by e, the sum of their squared counts is about
    ``m + m**2 / 256 * (1 + 1.39 * e)``. Bytes worth coding miss 1/16 bit (1/128 of eight); the line
    is drawn at half of that.
    """
    counts = np.zeros(256, np.int64)
    samples = np.int64(0)
    for at in range(0, plane.size - NOISE_BLOCK + 1, NOISE_STEP):
        for byte in plane[at : at + NOISE_BLOCK]:
            counts[byte] += 1
        samples += NOISE_BLOCK
    squares = (counts * counts).sum()
    return 256 * (squares - samples) < samples * samples + samples * samples // 23
