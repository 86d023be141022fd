"""Write the blobs that a reader must refuse: ``python -m tensor_codecs.make_bad`` in tests/.

One or more for every refusal that FORMAT.md lists, with `bad/verdicts.csv`: the file, the base it is
given, the error, and a part of its message.
"""

from __future__ import annotations

import csv
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import zstandard

from tensor_codecs.anatomy import CODED, RAW, ZSTD, ZSTD_DELTA, Anatomy, Piece, assemble
from tensor_codecs.samples import ByteArray
from tensor_codecs.specimens import model, relatives, table
from tstore_codecs.dtypes import DTYPES
from tstore_codecs.registry import CODECS

FOLDER = Path(__file__).parent / "bad"
VERDICTS = FOLDER / "verdicts.csv"
BASE, TARGET = relatives("BF16", 100)
N = TARGET.size
CORRUPT, TRUNCATED = "CorruptBlobError", "TruncatedBlobError"


class Bad(NamedTuple):
    """A blob to refuse. `base` is a key of `BASES`."""

    name: str
    blob: bytes
    error: str
    message: str
    base: str = "none"


def bases(right: ByteArray) -> dict[str, ByteArray | None]:
    """Return the bases that a blob may be given, by their names in the table."""
    return {"none": None, "right": right, "short": right[:-1], "other": right ^ np.uint8(1)}


def sound(codec: str, written: bytes = b"", dtype: str = "BF16") -> Anatomy:
    """Return `TARGET` under `codec` with a model as written."""
    base = BASE if CODECS[codec].needs_base else BASE[:0]
    return assemble(CODECS[codec], dtype, TARGET, base, -(-N // 8) * 8, written)


def one_chunk(codec: str, payload: bytes, form: int = CODED, dtype: str = "U8") -> Anatomy:
    """Return a blob of 100 bytes in one chunk that says it has `payload`."""
    kind, flags = CODECS[codec], int(CODECS[codec].needs_base)
    return Anatomy(kind.wire_id, DTYPES[dtype].wire_id, 100, (Piece(form, payload),), flags=flags)


def bad_frames() -> Iterator[Bad]:
    """Yield what "Frame" refuses."""
    ok = sound("zipnn")
    blob, size = ok.seal(), len(ok.pieces[0].payload)
    yield Bad("magic", replace(ok, magic=b"\xa7TSC").seal(), CORRUPT, "begin with")
    for version in (0, 2):
        changed = replace(ok, version=version).seal()
        yield Bad(f"version-{version}", changed, "UnsupportedVersionError", f"version {version}")
    for c in (0, 4, 204, (1 << 20) + 8, 1 << 31):
        yield Bad(f"chunk-of-{c}", replace(ok, chunk_nbytes=c).seal(), CORRUPT, "chunk size")
    for length in (0, 3, 23, 24, 43, 51, -1):
        yield Bad(f"cut-to-{length}", blob[:length], TRUNCATED, "at least")
    yield Bad("longer", replace(ok, rest=b"\0").seal(), CORRUPT, "bytes; found")
    yield Bad("huge-R", replace(ok, raw_nbytes=2**64 - 1).seal(), TRUNCATED, "at least")
    yield Bad("huge-M", replace(ok, model_nbytes=2**32 - 1).seal(), TRUNCATED, "at least")
    yield Bad("head-sum", replace(ok, head_sum=7).seal(), CORRUPT, "head has checksum")
    for codec in (8, 255):
        yield Bad(
            f"codec-{codec}", replace(ok, codec=codec).seal(), "UnknownCodecError", "assigned"
        )
    for dtype in (23, 255):
        changed = replace(ok, dtype=dtype).seal()
        yield Bad(f"dtype-{dtype}", changed, "UnsupportedDtypeError", f"found {dtype}")
    for flags in (1, 2, 128):
        yield Bad(f"flags-{flags}", replace(ok, flags=flags).seal(), CORRUPT, "do not go with")
    alone = replace(sound("tensorx"), flags=0).seal()
    yield Bad("flags-0-with-base", alone, CORRUPT, "do not go with", "right")
    yield Bad("payload-empty", ok.with_payload(0, b"").seal(), CORRUPT, "is empty")
    too_long = ok.with_payload(0, bytes(N + 1)).seal()
    yield Bad("payload-longer-than-raw", too_long, CORRUPT, "longer than its raw")
    cut = replace(ok, pieces=(replace(ok.pieces[0], size=size + 1),)).seal()
    yield Bad("payload-beyond-the-end", cut, TRUNCATED, "at least")
    unused = replace(sound("stored"), model=b"\1").seal()
    yield Bad("model-of-raw-chunks", unused, CORRUPT, "no chunk needs")
    empty = replace(sound("fmpp", model(33, 1, 0, 0, 0, 0)), raw_nbytes=0, pieces=()).seal()
    yield Bad("model-without-chunks", empty, CORRUPT, "no chunk needs", "none")


def bad_sums() -> Iterator[Bad]:
    """Yield wrong bases, and checksums that do not hold."""
    alone, delta = sound("zipnn"), sound("tensorx")
    yield Bad("base-missing", delta.seal(), "MissingBaseError", "found none")
    yield Bad("base-unexpected", alone.seal(), "UnexpectedBaseError", "no base", "right")
    yield Bad("base-short", delta.seal(), "WrongBaseError", f"base of {N} bytes", "short")
    yield Bad("base-other", delta.seal(), "WrongBaseError", "chunk 0", "other")
    piece = alone.pieces[0]
    stale = replace(alone, pieces=(replace(piece, payload_sum=7),)).seal()
    yield Bad("sum-of-payload", stale, CORRUPT, "chunk 0 with checksum")
    other = replace(alone, pieces=(replace(piece, raw_sum=7),)).seal()
    yield Bad("sum-of-raw", other, CORRUPT, "decode to bytes with checksum")


def bad_chunks() -> Iterator[Bad]:
    """Yield what "Chunk" and "Codec ids" refuse."""
    yield Bad("raw-short", one_chunk("zstd", bytes(99), RAW).seal(), CORRUPT, "100 raw bytes")
    frame = zstandard.compress(bytes(100))
    yield Bad("delta-alone", one_chunk("zipnn", frame, ZSTD_DELTA).seal(), CORRUPT, "has no base")
    yield Bad("stored-coded", one_chunk("stored", frame).seal(), CORRUPT, "to be raw")
    for codec in ("stored", "zstd", "zipnn"):
        changed = replace(one_chunk(codec, b"\1a"), model=b"\0").seal()
        yield Bad(f"model-of-{codec}", changed, CORRUPT, "expected no model")
    for codec in ("bitx", "tensorx"):
        changed = replace(sound(codec), model=b"\0").seal()
        yield Bad(f"model-of-{codec}", changed, CORRUPT, "expected no model", "right")


def frame_stating(nbytes: int, window_log: int) -> bytes:
    """Return a zstd frame of 10,000 bytes whose header is changed to state other sizes."""
    frame = zstandard.ZstdCompressor().compress(bytes(range(200)) * 50)
    assert frame[4:7] == b"\x60" + struct.pack("<H", 10_000 - 256)
    return frame[:4] + struct.pack("<BBI", 0x80, window_log - 10 << 3, nbytes) + frame[7:]


def bad_zstd_frames() -> Iterator[Bad]:
    """Yield what "zstd frame" refuses, in a chunk of form 2 and in coded ones."""
    for nbytes, log in ((9_999, 17), (10_001, 17), (1 << 30, 17), (10_000, 21), (10_000, 31)):
        parts = replace(one_chunk("zstd", frame_stating(nbytes, log)), raw_nbytes=10_000)
        yield Bad(f"zstd-{nbytes}-{log}", parts.seal(), CORRUPT, f"states {nbytes} and {1 << log}")
    good = zstandard.compress(bytes(100))
    unstated = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(100))
    named = good[:4] + bytes((good[4] | 1, 77)) + good[5:]  # the same frame, with a dictionary id
    wrong = {
        "no-size": (unstated, "frame of 100 bytes"),
        "dictionary": (named, "Dictionary mismatch"),
        "more-bytes": (good + b"\0", "unused data"),
        "another-frame": (good + good, "unused data"),
        "cut": (good[:-1], "did not decompress full frame"),
        "skippable": (struct.pack("<II", 0x184D2A50, 92) + bytes(92), "zstd frame"),
        "not-a-frame": (b"not a frame", "valid zstd frame"),
        "checksum": (zstd_frame_with_bad_checksum(), "checksum"),
    }
    for name, (frame, message) in wrong.items():
        yield Bad(f"zstd-{name}", one_chunk("zipnn", frame, ZSTD).seal(), CORRUPT, message)
    small = zstandard.compress(bytes(N - 1))
    for codec, form in (("bitx", CODED), ("tensorx", ZSTD), ("tensorx", ZSTD_DELTA)):
        changed = replace(sound(codec), pieces=(replace(sound(codec).pieces[0], form=form),))
        blob = changed.with_payload(0, small).seal()
        yield Bad(f"zstd-short-{codec}-{form}", blob, CORRUPT, "expected a zstd frame", "right")


def zstd_frame_with_bad_checksum() -> bytes:
    """Return a zstd frame whose own checksum is wrong."""
    frame = zstandard.ZstdCompressor(write_checksum=True).compress(bytes(100))
    return frame[:-1] + bytes((frame[-1] ^ 1,))


def bad_planes() -> Iterator[Bad]:
    """Yield what "Planar chunk" and "Byte plane" refuse."""
    wrong = {
        "no-bytes-of-raw": (b"\0abc", "expected 100 bytes at offset 1"),
        "no-constant": (b"\1", "expected 1 bytes at offset 1"),
        "more": (b"\1aa", "1 bytes more"),
        "mode-5": (b"\5abc", "plane mode"),
        "sparse-in-masks": (b"\4\4abc", "plane mode"),
        "sparse-in-values": (b"\4\1\1\4abc", "plane mode"),
        "sparse-beyond": (b"\4\1\xff\1a", "beyond its end"),
        "sparse-without-masks": (b"\4\0abc", "expected 13 bytes"),
        "sparse-without-values": (b"\4\1\1", "expected 1 bytes"),
        "sparse-with-more": (b"\4\1\0\0a", "1 bytes more"),
        "mode-255": (b"\xff", "plane mode"),
        "half-a-length": (b"\2\5\0\0", "expected 4 bytes"),
        "length-of-4-GiB": (b"\2\xff\xff\xff\xff", "expected 4294967295 bytes"),
        "rans-of-nothing": (b"\2\0\0\0\0", "ends early"),
        "zstd-of-nothing": (b"\3\0\0\0\0", "valid zstd frame"),
    }
    for name, (payload, message) in wrong.items():
        yield Bad(f"plane-{name}", one_chunk("zipnn", payload).seal(), CORRUPT, message)
    lost = one_chunk("zipnn", b"\1a\1a\1a", dtype="F32").seal()
    yield Bad("plane-missing", lost, CORRUPT, "expected 1 bytes at offset 6")
    tail = replace(one_chunk("zipnn", b"\1", dtype="F64"), raw_nbytes=7).seal()
    yield Bad("plane-no-tail", tail, CORRUPT, "expected 7 bytes at offset 0")


ONLY_ZEROS = b"\0\1\xff\x1f"
"""The table in which symbol 0 has all of 4096."""


def bad_tables() -> Iterator[Bad]:
    """Yield what "rANS stream" refuses about frequency tables."""
    early, shortest, wrong_sum = "ends early", "shortest form", "sum to 4096"
    wrong = {
        "of-nothing": (b"\xff", early),
        "cut-bits": (b"\x08\xff", early),
        "cut-frequency": (b"\0\1", early),
        "cut-in-a-frequency": (b"\0\1\xff", early),
        "long-frequency": (b"\1\3\x85\0\xf9\x1f", shortest),
        "bit-above": (b"\0\3\xff\x1f\0", shortest),
        "no-bit": (b"\1\1\xff\x1f\0", shortest),
        "sum-4095": (b"\0\1\xfe\x1f", wrong_sum),
        "sum-4097": (b"\0\1\x80\x20", wrong_sum),
        "sum-32768": (b"\0\1\xff\xff", wrong_sum),
    }
    for name, (written, message) in wrong.items():
        stream = struct.pack("<BI", 2, len(written)) + written
        yield Bad(f"table-{name}", one_chunk("zipnn", stream).seal(), CORRUPT, message)
        changed = replace(sound("ulpack", model(59, 1, 0, 0, 0, 0)), model=b"\1" + written)
        yield Bad(f"model-table-{name}", changed.seal(), CORRUPT, message, "right")


def bad_streams() -> Iterator[Bad]:
    """Yield what "rANS stream" refuses about states and words, in planes and in residuals."""
    start = struct.pack("<4I", *[1 << 16] * 4)
    wrong = {
        "no-states": (start[:-1], "16 bytes of states"),
        "odd": (start + b"\0", "even number"),
        "low-state": (struct.pack("<4I", *[1 << 16] * 3, 65535), "starts below"),
        "no-state": (bytes(16), "starts below"),
        "word-left": (start + b"\0\0", "words are left"),
        "other-end": (struct.pack("<4I", *[1 << 16] * 3, 65537), "does not end"),
    }
    for name, (written, message) in wrong.items():
        stream = ONLY_ZEROS + written
        payload = struct.pack("<BI", 2, len(stream)) + stream
        yield Bad(f"stream-{name}", one_chunk("zipnn", payload).seal(), CORRUPT, message)
    for codec, highest in (("fmpp", 33), ("ulpack", 59)):
        ok = sound(codec, model(highest, 1, 0, 0, 0, 0))
        payload = ok.pieces[0].payload
        same = replace(ok, model=b"\1" + ONLY_ZEROS)
        for name, (written, message) in wrong.items():
            blob = same.with_payload(0, payload[:1] + written).seal()
            yield Bad(f"{codec}-stream-{name}", blob, CORRUPT, message, "right")
        cut = ok.with_payload(0, payload[:17] + payload[19:]).seal()
        yield Bad(f"{codec}-stream-word-missing", cut, CORRUPT, "run out", "right")
        empty = ok.with_payload(0, payload[:17]).seal()
        yield Bad(f"{codec}-stream-without-words", empty, CORRUPT, "run out", "right")
    uniform = table(np.ones(256, np.int64))
    stream = uniform + start
    payload = struct.pack("<BI", 2, len(stream)) + stream
    blob = replace(one_chunk("zipnn", payload), raw_nbytes=400).seal()
    yield Bad("stream-without-words", blob, CORRUPT, "run out")


def bad_models() -> Iterator[Bad]:
    """Yield what "Residuals" and "Model" refuse."""
    choice, classes = bytes(i % 2 for i in range(64)), bytes(i % 2 for i in range(10))
    tables = model(59, 2, 0, 1, 0, 0)[:-39]
    one = model(59, 1, 0, 0, 0, 0)

    def rows(k: int, row: int, content: bytes, more: bytes = b"") -> bytes:
        return tables + struct.pack("<BHI", k, 100, row) + zstandard.compress(content) + more

    def plain(k: int, row: int, content: bytes) -> bytes:
        return tables + struct.pack("<BHI", k, 100, row) + content

    wrong = {
        "of-nothing": (b"", "expected 1 bytes at offset 0"),
        "T-0": (b"\0" + one[1:], "1 to 64 tables"),
        "T-65": (b"\x41" + one[1:], "1 to 64 tables"),
        "T-2-of-1": (b"\2" + one[1:], "ends early"),
        "bytes-after-one-table": (one + b"\0", "found 1 bytes"),
        "symbol-60": (model(60, 1, 0, 0, 0, 0), "up to 59"),
        "symbol-255": (model(255, 1, 0, 0, 0, 0), "up to 59"),
        "no-contexts": (tables, "expected 7 bytes"),
        "K-0": (plain(0, 0, choice[:32]), "0 classes"),
        "K-33": (rows(33, 10, choice + classes), "33 classes"),
        "K-1-N-10": (plain(1, 10, choice[:32]), "1 classes of rows of 10"),
        "K-2-N-0": (rows(2, 0, choice + classes), "2 classes of rows of 0"),
        "K-1-short": (plain(1, 0, choice[:31]), "expected 32 contexts; found 31"),
        "K-1-long": (plain(1, 0, choice[:33]), "expected 32 contexts; found 33"),
        "K-1-choice-2": (plain(1, 0, choice[:31] + b"\2"), "names a table"),
        "K-2-choice-2": (rows(2, 10, choice[:63] + b"\2" + classes), "names a table"),
        "K-2-choice-255": (rows(2, 10, choice[:63] + b"\xff" + classes), "names a table"),
        "K-2-class-2": (rows(2, 10, choice + classes[:9] + b"\2"), "names a table"),
        "K-2-a-row-missing": (rows(2, 10, choice + classes[:9]), "expected a zstd frame of 74"),
        "K-2-a-row-more": (rows(2, 10, choice + classes + b"\0"), "expected a zstd frame of 74"),
        "K-2-no-frame": (plain(2, 10, choice + classes), "valid zstd frame"),
        "K-2-bytes-after": (rows(2, 10, choice + classes, b"\0"), "unused data"),
        "N-1": (rows(2, 1, choice + classes), "expected a zstd frame of 164"),
        "N-huge": (rows(2, 2**32 - 1, choice + classes), "expected a zstd frame of 65"),
    }
    ok = sound("ulprow", rows(2, 10, choice + classes))
    for name, (written, message) in wrong.items():
        yield Bad(f"model-{name}", replace(ok, model=written).seal(), CORRUPT, message, "right")
    ordered = sound("fmpp", model(33, 1, 0, 0, 0, 0))
    high = replace(ordered, model=model(34, 1, 0, 0, 0, 0)).seal()
    yield Bad("model-fmpp-symbol-34", high, CORRUPT, "up to 33", "right")


def all_bad() -> list[Bad]:
    """Return every blob to refuse."""
    makers = (
        bad_frames, bad_sums, bad_chunks, bad_zstd_frames, bad_planes, bad_tables, bad_streams,
        bad_models,
    )  # fmt: skip
    return [bad for make in makers for bad in make()]


def main() -> None:
    """Write every blob that does not exist yet, the base, and the table of verdicts."""
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "right.base").write_bytes(BASE.tobytes())
    with VERDICTS.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("blob", "base", "error", "message"))
        for bad in all_bad():
            writer.writerow((bad.name, bad.base, bad.error, bad.message))
            path = FOLDER / f"{bad.name}.blob"
            if not path.exists():
                path.write_bytes(bad.blob)


if __name__ == "__main__":
    main()
