"""Blobs written once must stay readable for good."""

import pytest

import tstore_codecs as tc
from tensor_codecs import reference
from tensor_codecs.make_golden import CASES, VERSION_FOLDER, Case, write_missing

WITHOUT_ZSTD = {("stored", "BF16"), ("stored", "F32"), ("zipnn", "BF16"), ("tensorx", "BF16")}
"""Blobs whose bytes depend on this package alone, not on the release of the zstd library."""


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.codec}-{case.dtype}")
def test_golden_blobs_decode(case: Case) -> None:
    blob, target = case.blob.read_bytes(), case.target.read_bytes()
    base = case.base.read_bytes() if case.base else None
    assert tc.decode(blob, base=base).tobytes() == target
    assert reference.decode_blob(blob, base) == target
    assert (tc.inspect(blob).codec, tc.inspect(blob).dtype) == (case.codec, case.dtype)
    if (case.codec, case.dtype) in WITHOUT_ZSTD:
        assert b"\x28\xb5\x2f\xfd" not in blob
        assert tc.encode(target, dtype=case.dtype, codec=case.codec, base=base) == blob


def test_every_golden_file_belongs_to_a_case() -> None:
    expected = {path for case in CASES for path in (case.blob, case.target, case.base) if path}
    assert set(VERSION_FOLDER.iterdir()) == expected


def test_golden_files_are_never_rewritten() -> None:
    before = {path: path.stat().st_mtime_ns for path in VERSION_FOLDER.iterdir()}
    assert write_missing() == []
    assert {path: path.stat().st_mtime_ns for path in VERSION_FOLDER.iterdir()} == before
