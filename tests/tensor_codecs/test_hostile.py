"""Blobs made to deceive: sound checksums, lies inside. Kernels do not check indices: readers must."""

import csv
import struct
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

import tstore_codecs as tc
from tensor_codecs.anatomy import CODED, Anatomy, take_apart
from tensor_codecs.fuzz import decode_unchecked
from tensor_codecs.make_bad import FOLDER, VERDICTS, all_bad, bases
from tensor_codecs.mutations import cases
from tensor_codecs.specimens import DTYPES_SEEN, FEW, MANY, Specimen, relatives, specimen
from tstore_codecs.kernels.paths import PATH, PATHS
from tstore_codecs.registry import CODECS

MIB = 1 << 20
SCRATCH = 4 * MIB
"""What a reader may allocate for a small blob: tables and the lookups made of them, one chunk."""

with VERDICTS.open(newline="") as _file:
    VERDICTS_READ = list(csv.DictReader(_file))


def peak_of(action: Callable[[], Any]) -> int:
    """Return the most bytes that `action` held at a time; it may raise `CodecError`."""
    tracemalloc.start()
    try:
        action()
    except tc.CodecError:
        pass
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return peak


@pytest.mark.parametrize("verdict", VERDICTS_READ, ids=lambda verdict: verdict["blob"])
def test_each_bad_blob_has_its_verdict(verdict: dict[str, str]) -> None:
    blob = (FOLDER / f"{verdict['blob']}.blob").read_bytes()
    base = bases(np.fromfile(FOLDER / "right.base", np.uint8))[verdict["base"]]
    with pytest.raises(tc.CodecError) as caught:
        tc.decode(blob, base=base)
    assert type(caught.value).__name__ == verdict["error"]
    assert verdict["message"] in str(caught.value)
    assert peak_of(lambda: tc.decode(blob, base=base)) < SCRATCH


def test_verdicts_and_bad_blobs_are_those_of_the_maker() -> None:
    names = [verdict["blob"] for verdict in VERDICTS_READ]
    assert names == [bad.name for bad in all_bad()]
    assert len(set(names)) == len(names)
    assert sorted(f"{name}.blob" for name in names) == sorted(
        path.name for path in FOLDER.glob("*.blob")
    )


def small() -> list[Specimen]:
    """Return specimens of which every bit can be flipped."""
    found = [specimen(codec, "BF16", FEW) for codec in tc.available()[1:]]
    for dtype in DTYPES_SEEN:
        found.append(specimen("ulpack", dtype, FEW, 2, 1))
        found.append(specimen("ulprow", dtype, FEW, 2, 3))
    return [*found, specimen("tensorx", "F32", FEW, 2), specimen("fmpp", "F64", FEW, 2, 1)]


def parts_of(found: Specimen) -> Iterator[tuple[bytes, Callable[[bytes], Anatomy]]]:
    """Yield the model and each coded payload, with what puts another in its place."""
    if found.parts.model:
        yield found.parts.model, lambda model: replace(found.parts, model=model)
    for i, piece in enumerate(found.parts.pieces):
        if piece.form == CODED:
            yield piece.payload, partial(found.parts.with_payload, i)


def ends_well(found: Specimen, damaged: Anatomy) -> bool:
    """Say whether the decoders accept `damaged`; fail if they do neither that nor refuse it."""
    try:
        decoded = decode_unchecked(damaged.seal(), found.base)
    except tc.CodecError:
        return False
    assert len(decoded) == found.target.size
    return True


@pytest.mark.parametrize("found", small(), ids=lambda found: found.name)
def test_flipped_bits_end_well_without_checksums(found: Specimen) -> None:
    """Every bit of short parts, every eleventh of long ones."""
    for part, put in parts_of(found):
        for bit in range(0, 8 * len(part), 1 if len(part) < 150 else 11):
            damaged = bytearray(part)
            damaged[bit // 8] ^= 1 << bit % 8
            ends_well(found, put(bytes(damaged)))
    assert ends_well(found, found.parts)


@pytest.mark.parametrize("found", small(), ids=lambda found: found.name)
def test_every_truncation_is_refused_without_checksums(found: Specimen) -> None:
    for part, put in parts_of(found):
        assert not any(ends_well(found, put(part[:length])) for length in range(len(part)))


@pytest.mark.parametrize("codec", ["zipnn", "tensorx", "fmpp", "ulprow"])
@pytest.mark.parametrize("dtype", ["BF16", "F64"])
def test_flipped_bits_of_whole_rows_of_lanes_end_well(codec: str, dtype: str) -> None:
    classes = 3 if codec == "ulprow" else 0
    found = specimen(codec, dtype, MANY, 1, classes)
    rng = np.random.default_rng(0)
    for part, put in parts_of(found):
        for bit in rng.integers(0, 8 * len(part), 150):
            damaged = bytearray(part)
            damaged[bit // 8] ^= 1 << bit % 8
            ends_well(found, put(bytes(damaged)))


def test_invented_and_mutated_blobs_end_well() -> None:
    stream = cases(np.random.default_rng(1))
    for _ in range(1000):
        case = next(stream)
        try:
            decode_unchecked(case.blob, case.base)
        except tc.CodecError:
            continue


def test_a_second_of_fuzzing_finds_nothing() -> None:
    path = next(name for name, path in PATHS.items() if path == PATH)
    child = subprocess.run(
        [sys.executable, "-m", "tensor_codecs.fuzz", "--seconds", "1", "--paths", path],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    assert "exit code 0" in child.stdout


def test_the_class_of_an_only_row_counts() -> None:
    """A foreign writer may give the only row of a tensor a class; ours never does."""
    found = specimen("ulprow", "BF16", FEW, 1, 1)
    model = found.parts.model
    tables, low, choice = model[:-39], model[-38:-36], model[-32:]
    rows = struct.pack("<BHI", 2, int.from_bytes(low, "little"), FEW)
    content = zstandard.compress(choice[::-1] + choice + b"\1")
    foreign = replace(found.parts, model=tables + rows + content).seal()
    assert tc.decode(foreign, base=found.base).tobytes() == found.target.tobytes()


def test_bits_beyond_fields_are_ignored() -> None:
    """A sign and the seven bits of a mantissa leave room in their last bytes."""
    found = specimen("bitx", "BF16", FEW)
    payload = found.parts.pieces[0].payload
    content = bytearray(zstandard.decompress(payload))
    signs = -(-FEW // 8)
    content[signs - 1] |= 0xF0
    content[signs + FEW] |= 0x80
    foreign = found.parts.with_payload(0, zstandard.compress(bytes(content))).seal()
    assert tc.decode(foreign, base=found.base).tobytes() == found.target.tobytes()


def test_a_range_allocates_no_more_than_its_chunks() -> None:
    blob = tc.encode(bytes(64 * MIB), dtype="BF16", codec="zipnn")
    assert peak_of(lambda: tc.decode_range(blob, 40 * MIB + 3, 40 * MIB + 9)) < SCRATCH


@pytest.mark.parametrize("threads", [-1, 0, 1, 3, 10**9])
def test_any_number_of_threads_will_do(threads: int) -> None:
    base, target = relatives("F32", MIB)
    blob = tc.encode(target, dtype="F32", codec="fmpp", base=base, threads=threads)
    before = threading.active_count()
    assert tc.decode(blob, base=base, threads=threads).tobytes() == target.tobytes()
    assert threading.active_count() == before


@pytest.mark.parametrize("broken", [0, 2, 4])
def test_one_bad_chunk_among_threads_is_an_error(broken: int) -> None:
    base, target = relatives("F32", MIB + 9)
    parts = take_apart(tc.encode(target, dtype="F32", codec="tensorx", base=base))
    assert len(parts.pieces) == 5
    bad = parts.with_payload(broken, parts.pieces[broken].payload[:-1]).seal()
    before = threading.active_count()
    with pytest.raises(tc.CorruptBlobError):
        tc.decode(bad, base=base, threads=4)
    assert threading.active_count() == before


def test_out_may_overlap_neither_base_nor_blob() -> None:
    found = specimen("ulpack", "BF16", FEW, 2, 1)
    blob = found.parts.seal()
    memory = np.zeros(len(blob) + 2 * found.target.size, np.uint8)
    memory[: len(blob)] = np.frombuffer(blob, np.uint8)
    memory[-found.target.size :] = found.base
    ours, theirs = memory[: len(blob)], memory[-found.target.size :]
    for start in (0, 50, len(blob) - 1, len(blob) + 1):
        out = memory[start : start + found.target.size]
        with pytest.raises(tc.UnsuitableBufferError, match="overlap"):
            tc.decode(ours, base=theirs, out=out)
    apart = memory[len(blob) : len(blob) + found.target.size]
    assert tc.decode(ours, base=theirs, out=apart).tobytes() == found.target.tobytes()


@pytest.mark.parametrize("codec", tc.available())
def test_memory_of_encode_and_decode_is_bounded(codec: str) -> None:
    base, target = relatives("BF16", 4 * MIB)
    theirs = base if CODECS[codec].needs_base else None
    blob = b""

    def encode() -> None:
        nonlocal blob
        blob = tc.encode(target, dtype="BF16", codec=codec, base=theirs)

    assert peak_of(encode) < 2 * target.size + 8 * MIB
    assert peak_of(lambda: tc.decode(blob, base=theirs)) < 1.2 * target.size + 8 * MIB
