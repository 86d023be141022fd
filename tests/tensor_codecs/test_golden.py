"""Blobs written once must stay readable for good."""

import numpy as np
import pytest

import tstore_codecs as tc
from tensor_codecs import reference
from tensor_codecs.make_golden import CASES, VERSION_FOLDER, Case, write_missing
from tstore_codecs.forms import Form
from tstore_codecs.frame import read_frame

WITHOUT_ZSTD = {
    "stored": {"U8"},
    "zipnn": {"BF16", "F16", "F32", "U8"},
    "tensorx": {"F16", "OPAQUE", "U8"},
    "fmpp": {"BF16", "F16", "F32", "I64", "OPAQUE", "U8"},
    "ulpack": {"BF16", "F16", "F32", "I64", "OPAQUE", "U8"},
    "ulprow": {"F16", "I64", "OPAQUE", "U8"},
}
"""Blobs whose bytes depend on this package alone, not on the release of the zstd library."""


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.codec}-{case.dtype}")
def test_golden_blobs_decode(case: Case) -> None:
    blob, target = case.blob.read_bytes(), case.target.read_bytes()
    base = case.base.read_bytes() if case.base else None
    assert tc.decode(blob, base=base).tobytes() == target
    assert reference.decode_blob(blob, base) == target
    assert (tc.inspect(blob).codec, tc.inspect(blob).dtype) == (case.codec, case.dtype)
    if case.dtype in WITHOUT_ZSTD.get(case.codec, ()):
        assert b"\x28\xb5\x2f\xfd" not in blob
        assert case.encode() == blob


def test_golden_blobs_have_every_form_and_kind_of_model() -> None:
    forms, models = set(), set()
    for case in CASES:
        frame = read_frame(np.frombuffer(case.blob.read_bytes(), np.uint8))
        forms |= {Form(form) for form in frame.forms.tolist()}
        if frame.model.size:
            nbytes = frame.info.raw_nbytes
            model = reference.read_model(frame.model.tobytes(), frame.dtype.wire_id, nbytes)
            models.add((len(model.tables) > 1, len(set(model.classes)) > 1))
    assert forms == set(Form)
    assert models == {(False, False), (True, False), (True, True)}


def test_every_golden_file_belongs_to_a_case() -> None:
    expected = {path for case in CASES for path in (case.blob, case.target, case.base) if path}
    assert set(VERSION_FOLDER.iterdir()) == expected


def test_golden_files_are_never_rewritten() -> None:
    before = {path: path.stat().st_mtime_ns for path in VERSION_FOLDER.iterdir()}
    assert write_missing() == []
    assert {path: path.stat().st_mtime_ns for path in VERSION_FOLDER.iterdir()} == before
