"""XXH64, seed 0, after the xxHash specification."""

import numpy as np

from tstore_codecs.kernels.compiled import kernel

_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)
_R1, _R7, _R11, _R12, _R18 = (np.uint64(bits) for bits in (1, 7, 11, 12, 18))
_R23, _R27, _R31 = (np.uint64(bits) for bits in (23, 27, 31))


@kernel
def _word(data, at, nbytes):
    """Return `nbytes` bytes as a little-endian number; LLVM makes one unaligned load of it."""
    word = np.uint64(0)
    for k in range(nbytes):
        word |= np.uint64(data[at + k]) << np.uint64(8 * k)
    return word


@kernel
def _rotl(x, bits):
    return (x << bits) | (x >> (np.uint64(64) - bits))


@kernel
def _round(state, word):
    return _rotl(state + word * _P2, _R31) * _P1


@kernel
def _merge(digest, state):
    return (digest ^ _round(np.uint64(0), state)) * _P1 + _P4


@kernel
def xxh64(data):
    """Return the XXH64 of `data`.

    Parameters
    ----------
    data : uint8 (n,)
        Contiguous, of any alignment.

    Returns
    -------
    uint64
    """
    n = data.size
    at = 0
    if n >= 32:
        a, b, c, d = _P1 + _P2, _P2, np.uint64(0), np.uint64(0) - _P1
        while at + 32 <= n:
            a = _round(a, _word(data, at, 8))
            b = _round(b, _word(data, at + 8, 8))
            c = _round(c, _word(data, at + 16, 8))
            d = _round(d, _word(data, at + 24, 8))
            at += 32
        digest = _rotl(a, _R1) + _rotl(b, _R7) + _rotl(c, _R12) + _rotl(d, _R18)
        digest = _merge(_merge(_merge(_merge(digest, a), b), c), d)
    else:
        digest = _P5
    digest += np.uint64(n)
    while at + 8 <= n:
        digest = _rotl(digest ^ _round(np.uint64(0), _word(data, at, 8)), _R27) * _P1 + _P4
        at += 8
    if at + 4 <= n:
        digest = _rotl(digest ^ (_word(data, at, 4) * _P1), _R23) * _P2 + _P3
        at += 4
    while at < n:
        digest = _rotl(digest ^ (np.uint64(data[at]) * _P5), _R11) * _P1
        at += 1
    digest = (digest ^ (digest >> np.uint64(33))) * _P2
    digest = (digest ^ (digest >> np.uint64(29))) * _P3
    return digest ^ (digest >> np.uint64(32))
