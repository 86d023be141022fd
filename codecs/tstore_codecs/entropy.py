"""A rANS stream of bytes: table, lane states, words. FORMAT.md, "rANS stream"."""

import numpy as np
import numpy.typing as npt

from tstore_codecs.buffers import ByteArray
from tstore_codecs.errors import CorruptBlobError
from tstore_codecs.kernels import freqs as tables
from tstore_codecs.kernels import rans

STATES_NBYTES = 4 * rans.LANES

_TABLE_FAULTS = {
    tables.TABLE_ENDS_EARLY: "the frequency table ends early",
    tables.TABLE_NOT_CANONICAL: "the frequency table is not in its shortest form",
    tables.TABLE_WRONG_SUM: "the frequencies do not sum to 4096",
}
_STREAM_FAULTS = {
    rans.STACK_UNDERFLOW: "the words run out before the symbols",
    rans.STACK_LEFTOVER: "words are left after the last symbol",
    rans.WRONG_FINAL_STATE: "a lane does not end in its first state",
}


def histogram(symbols: ByteArray) -> npt.NDArray[np.int64]:
    """Return how often each byte value occurs in `symbols`, int64 (256,)."""
    counts = np.empty(256, np.int64)
    tables.histogram(symbols, counts)
    return counts


def encode_symbols(symbols: ByteArray, counts: npt.NDArray[np.int64], limit: int) -> bytes | None:
    """Return the rANS stream of `symbols`, or None if it would surely pass `limit` bytes.

    Parameters
    ----------
    symbols
        uint8 (n,), n > 0.
    counts
        Their `histogram`.
    limit
        In bytes. A stream that is not refused may still be slightly longer.
    """
    freqs = np.empty(256, np.uint32)
    tables.normalise(counts, freqs)
    if tables.coded_nbytes(counts, freqs) >= limit:
        return None
    table = np.empty(tables.MAX_TABLE_NBYTES, np.uint8)
    table = table[: tables.write_table(freqs, table)]
    states = np.empty(rans.LANES, np.uint32)
    words = np.empty(symbols.size + 1, np.uint16)
    height = rans.encode_lanes(symbols, freqs, states, words)
    return b"".join((table.tobytes(), states.tobytes(), words[:height].tobytes()))


def decode_symbols(stream: ByteArray, out: ByteArray) -> None:
    """Fill `out`, uint8 (n,), from exactly the bytes of `stream`.

    Raises
    ------
    CorruptBlobError
        If `stream` is not what `encode_symbols` writes for n symbols.
    """
    freqs = np.empty(256, np.uint32)
    table_nbytes = tables.read_table(stream, freqs)
    if table_nbytes in _TABLE_FAULTS:
        raise CorruptBlobError(f"bad rANS stream: {_TABLE_FAULTS[table_nbytes]}")
    words_nbytes = stream.size - table_nbytes - STATES_NBYTES
    if words_nbytes < 0 or words_nbytes % 2:
        raise CorruptBlobError(
            f"bad rANS stream: expected {STATES_NBYTES} bytes of states and an even number of "
            f"word bytes; found {stream.size - table_nbytes} bytes after the table"
        )
    states = np.empty(rans.LANES, np.uint32)
    words = np.zeros(rans.LANES + words_nbytes // 2, np.uint16)
    states.view(np.uint8)[:] = stream[table_nbytes : table_nbytes + STATES_NBYTES]
    words[rans.LANES :].view(np.uint8)[:] = stream[table_nbytes + STATES_NBYTES :]
    if states.min() < rans.STATE_LOW:
        raise CorruptBlobError("bad rANS stream: a lane starts below 2**16")
    slots = np.empty(tables.PROB_TOTAL, np.uint32)
    tables.decode_slots(freqs, slots)
    fault = rans.decode_lanes(words, slots, states, out)
    if fault != rans.OK:
        raise CorruptBlobError(f"bad rANS stream: {_STREAM_FAULTS[fault]}")
