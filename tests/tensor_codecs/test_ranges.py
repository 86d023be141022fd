"""Parts of a tensor: the bytes asked for, from what they need and nothing else."""

import itertools
import mmap
from pathlib import Path

import numpy as np
import pytest

import tstore_codecs as tc
from tensor_codecs import reference
from tensor_codecs.samples import ByteArray, row_steps, weights
from tstore_codecs import blob as blobs
from tstore_codecs import frame
from tstore_codecs.registry import CODECS

MIB = 1 << 20


def relatives(codec: str, rows: int, length: int) -> tuple[ByteArray, ByteArray | None]:
    """Return BF16 rows that moved by steps of their own, and their base if `codec` needs one."""
    target = weights("BF16", 2 * rows * length, step=row_steps(rows, length))
    return target, weights("BF16", target.size) if CODECS[codec].needs_base else None


def small_chunks(monkeypatch: pytest.MonkeyPatch, nbytes: int) -> None:
    """Let writers cut tensors into chunks of `nbytes` bytes."""
    monkeypatch.setattr(blobs, "CHUNK_NBYTES", nbytes)
    monkeypatch.setattr(frame, "CHUNK_NBYTES", nbytes)


@pytest.mark.parametrize("codec", tc.available())
def test_every_range_of_a_small_tensor(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    small_chunks(monkeypatch, 16)
    target = np.tile(weights("BF16", 16), 4)[:33]
    target[10:26] = 0
    base = target.copy() if CODECS[codec].needs_base else None
    if base is not None:
        base[::5] ^= 1
    blob = tc.encode(target, dtype="BF16", codec=codec, base=base)
    assert tc.inspect(blob).n_chunks == 3
    for start, stop in itertools.combinations_with_replacement(range(34), 2):
        part = tc.decode_range(blob, start, stop, base=base)
        assert part.dtype == np.uint8
        assert part.tobytes() == target[start:stop].tobytes()


@pytest.mark.parametrize("codec", tc.available())
@pytest.mark.parametrize("chunk_nbytes", [64, 1000, 8192, 10_240])
def test_chunks_of_any_size(codec: str, chunk_nbytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    small_chunks(monkeypatch, chunk_nbytes)
    target, base = relatives(codec, 40, 200)
    blob = tc.encode(target, dtype="BF16", codec=codec, shape=(40, 200), base=base)
    assert tc.inspect(blob).n_chunks == -(-16_000 // chunk_nbytes)
    whole = None if base is None else base.tobytes()
    assert reference.decode_blob(blob, whole) == target.tobytes()
    assert np.array_equal(tc.decode(blob, base=base, threads=2), target)
    rng = np.random.default_rng(chunk_nbytes)
    for start, stop in np.sort(rng.integers(0, target.size + 1, (30, 2))).tolist():
        part = tc.decode_range(blob, start, stop, base=base)
        assert np.array_equal(part, target[start:stop])


@pytest.mark.parametrize("codec", tc.available())
def test_every_border_of_large_chunks(codec: str) -> None:
    target, base = relatives(codec, 2200, 512)
    blob = tc.encode(target, dtype="BF16", codec=codec, shape=(2200, 512), base=base)
    borders = (0, 1, MIB - 1, MIB, 2 * MIB + 3, target.size)
    for start, stop in itertools.combinations_with_replacement(borders, 2):
        part = tc.decode_range(blob, start, stop, base=base, threads=2)
        assert np.array_equal(part, target[start:stop])


@pytest.mark.parametrize("codec", ["zipnn", "ulprow"])
def test_only_the_chunks_touched_are_read(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    small_chunks(monkeypatch, 4096)
    target, base = relatives(codec, 40, 200)
    blob = bytearray(tc.encode(target, dtype="BF16", codec=codec, shape=(40, 200), base=base))
    blob[-1] ^= 1
    assert np.array_equal(tc.decode_range(blob, 0, 12_288, base=base), target[:12_288])
    with pytest.raises(tc.CorruptBlobError, match="chunk 3"):
        tc.decode_range(blob, 0, 12_289, base=base)
    if base is not None:
        base[4096] ^= 1
        assert np.array_equal(tc.decode_range(blob, 8192, 12_288, base=base), target[8192:12_288])
        with pytest.raises(tc.WrongBaseError, match="chunk 1"):
            tc.decode_range(blob, 8191, 12_288, base=base)


def test_ranges_from_mapped_files(tmp_path: Path) -> None:
    target, base = relatives("ulprow", 40, 200)
    assert base is not None
    blob = tc.encode(target, dtype="BF16", codec="ulprow", shape=(40, 200), base=base)
    for name, content in (("blob", blob), ("base", base.tobytes())):
        (tmp_path / name).write_bytes(content)
    with (tmp_path / "blob").open("rb") as blob_file, (tmp_path / "base").open("rb") as base_file:
        mapped_blob = mmap.mmap(blob_file.fileno(), 0, access=mmap.ACCESS_READ)
        mapped_base = mmap.mmap(base_file.fileno(), 0, access=mmap.ACCESS_READ)
        part = tc.decode_range(mapped_blob, 999, 5001, base=mapped_base)
    assert np.array_equal(part, target[999:5001])


@pytest.mark.parametrize(("start", "stop"), [(-1, 5), (5, 4), (0, 101), (101, 101), (-3, -1)])
def test_no_such_range(start: int, stop: int) -> None:
    blob = tc.encode(bytes(100), dtype="U8", codec="zstd")
    with pytest.raises(
        tc.OutOfRangeError, match=f"within the 100 bytes .* found {start} to {stop}"
    ):
        tc.decode_range(blob, start, stop)


def test_a_range_needs_the_base_too() -> None:
    target, base = relatives("ulpack", 10, 10)
    assert base is not None
    blob = tc.encode(target, dtype="BF16", codec="ulpack", base=base)
    with pytest.raises(tc.MissingBaseError):
        tc.decode_range(blob, 0, 0)
    with pytest.raises(tc.WrongBaseError):
        tc.decode_range(blob, 0, 0, base=base[:-1])
    assert tc.decode_range(blob, 7, 7, base=base).size == 0
