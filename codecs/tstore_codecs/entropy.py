"""rANS streams from and to bytes: lane states, then words. FORMAT.md, "rANS stream"."""

import numpy as np
import numpy.typing as npt

from tstore_codecs.buffers import ByteArray
from tstore_codecs.errors import CorruptBlobError
from tstore_codecs.kernels import freqs as kernels
from tstore_codecs.kernels import rans
from tstore_codecs.kernels.lanes import PAD_WORDS, STATE_LOW
from tstore_codecs.kernels.paths import PATH
from tstore_codecs.tables import Freqs, read_table, write_table

_FAULTS = {
    rans.STACK_UNDERFLOW: "the words run out before the symbols",
    rans.STACK_LEFTOVER: "words are left after the last symbol",
    rans.WRONG_FINAL_STATE: "a lane does not end in its first state",
}

States = npt.NDArray[np.uint32]
Words = npt.NDArray[np.uint16]


def empty_stream(n: int, passes: int) -> tuple[States, Words]:
    """Return lane states and a stack for `n` symbols with up to `passes` passes of raw bits."""
    words = np.empty(n * (1 + passes) + PAD_WORDS, np.uint16)
    return np.empty(rans.lanes_of(n), np.uint32), words


def write_stream(states: States, words: Words) -> bytes:
    """Return the stream with these states to start from and this stack."""
    return states.tobytes() + words.tobytes()


def read_stream(stream: ByteArray, n: int) -> tuple[States, Words]:
    """Return the lane states of a stream of `n` symbols, and its stack with padding around.

    Raises
    ------
    CorruptBlobError
        If the bytes cannot be a stream.
    """
    states = np.empty(rans.lanes_of(n), np.uint32)
    n_words, odd = divmod(stream.size - states.nbytes, 2)
    if n_words < 0 or odd:
        raise CorruptBlobError(
            f"bad rANS stream: expected {states.nbytes} bytes of states and an even number of "
            f"word bytes; found {stream.size} bytes"
        )
    states.view(np.uint8)[:] = stream[: states.nbytes]
    if states.min() < STATE_LOW:
        raise CorruptBlobError("bad rANS stream: a lane starts below 2**16")
    words = np.zeros(n_words + 2 * PAD_WORDS, np.uint16)
    words[PAD_WORDS : PAD_WORDS + n_words].view(np.uint8)[:] = stream[states.nbytes :]
    return states, words


def check(fault: int) -> None:
    """Raise `CorruptBlobError` if a kernel returned another code than `rans.OK`."""
    if fault != rans.OK:
        raise CorruptBlobError(f"bad rANS stream: {_FAULTS[fault]}")


def histogram(symbols: ByteArray) -> npt.NDArray[np.int64]:
    """Return how often each byte value occurs in `symbols`, int64 (256,)."""
    counts = np.empty(256, np.int64)
    kernels.histogram(symbols, counts)
    return counts


def coded_nbytes(counts: npt.NDArray[np.int64], freqs: Freqs, n: int) -> int:
    """Return about how many bytes table and stream of `n` symbols with these counts take."""
    return int(kernels.coded_nbytes(counts, freqs)) + 4 * int(rans.lanes_of(n))


def encode_symbols(symbols: ByteArray, freqs: Freqs) -> bytes:
    """Return a table and a stream of `symbols`, uint8 (n,) with n > 0, under `freqs`."""
    ranges = np.empty(256, np.uint32)
    kernels.encode_ranges(freqs, ranges)
    states, words = empty_stream(symbols.size, 0)
    height = rans.encode_plane(PATH, symbols, ranges, states, words)
    return write_table(freqs) + write_stream(states, words[:height])


def decode_symbols(data: ByteArray, out: ByteArray) -> None:
    """Fill `out`, uint8 (n,), from exactly the bytes of `data`.

    Raises
    ------
    CorruptBlobError
        If `data` is not what `encode_symbols` returns for n symbols.
    """
    freqs, table_nbytes = read_table(data)
    states, words = read_stream(data[table_nbytes:], out.size)
    slots = np.empty(kernels.PROB_TOTAL, np.uint32)
    kernels.decode_slots(freqs, slots)
    check(rans.decode_plane(PATH, words, slots, states, out))
