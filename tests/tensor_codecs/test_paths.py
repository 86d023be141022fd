"""The bytes do not depend on the instructions that made them."""

import functools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import tstore_codecs as tc
from tensor_codecs import reference
from tensor_codecs.samples import ByteArray, FloatArray, row_steps, weights
from tstore_codecs.dtypes import DTYPES
from tstore_codecs.kernels import paths
from tstore_codecs.registry import CODECS

ORDERED = ("fmpp", "ulpack", "ulprow")
AROUND_TILES_AND_LANES = (1, 3, 4, 5, 31, 33, 2047, 2048, 2049, 4095, 4096, 4097, 4128, 6145)
"""Lengths around rows of 4 and 32 lanes, tiles of 2048, and where 32 lanes begin."""


def usable_paths() -> list[str]:
    """Return the paths this machine can run; all but AVX2 run anywhere."""
    features = paths.compiler_features()
    return [name for name in paths.PATHS if name != "avx2" or "avx2" in features]


@functools.cache
def modules_with_a_path() -> list[ModuleType]:
    """Return the modules of the package that have taken a path."""
    ours = [module for name, module in sys.modules.items() if name.startswith("tstore_codecs.")]
    return [module for module in ours if hasattr(module, "PATH")]


def use_path(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let the whole package take the path called `name`."""
    for module in modules_with_a_path():
        monkeypatch.setattr(module, "PATH", paths.PATHS[name])


def frozen(array: ByteArray) -> ByteArray:
    """Return a copy that cannot be written, as codecs get theirs."""
    copy = array.copy()
    copy.flags.writeable = False
    return copy


def pairs(dtype: str) -> Iterator[tuple[ByteArray, ByteArray]]:
    """Yield targets and bases of every awkward length, and with tables of one symbol only."""
    for n in AROUND_TILES_AND_LANES:
        yield relatives(dtype, n, 1e-3)
    yield relatives(dtype, 5000, 0.0)
    yield moved_where_large(dtype, 5000)


def pairs_for_the_reference(dtype: str) -> Iterator[tuple[ByteArray, ByteArray]]:
    """Yield targets and bases with classes of rows, and with raw bits of any width."""
    yield relatives(dtype, 5200, row_steps(40, 130))
    width = DTYPES[dtype].width
    target, base = np.random.default_rng(width).integers(0, 256, (2, 5000 * width), np.uint8)
    yield frozen(target), frozen(base)


def moved_where_large(dtype: str, n: int) -> tuple[ByteArray, ByteArray]:
    """Return a target whose small elements are those of the base: tables of one symbol."""
    base = weights(dtype, n * DTYPES[dtype].width)
    words = base.view(f"<u{DTYPES[dtype].width}").copy()
    magnitudes = words << words.dtype.type(1)
    words ^= (magnitudes > np.median(magnitudes)).astype(words.dtype)
    return frozen(words.view(np.uint8)), frozen(base)


def relatives(dtype: str, n: int, step: float | FloatArray) -> tuple[ByteArray, ByteArray]:
    """Return a target and a base of n elements of `dtype`."""
    nbytes = n * DTYPES[dtype].width
    return frozen(weights(dtype, nbytes, step=step)), frozen(weights(dtype, nbytes))


def check_all_paths(
    codec: str, dtype: str, target: ByteArray, base: ByteArray, monkeypatch: pytest.MonkeyPatch
) -> tuple[bytes, bytes]:
    """Code `target` on every path, decode what the first one wrote; return model and payload."""
    coder, kind = CODECS[codec], DTYPES[dtype]
    model = coder.fit(target, base, kind, 130, map)
    written = coder.write_model(model)
    payloads = []
    for name in usable_paths():
        use_path(monkeypatch, name)
        payloads.append(coder.encode_chunk(model, 0, target, base, kind))
        back = np.empty_like(target)
        read = coder.read_model(np.frombuffer(written, np.uint8), kind, target.size)
        coder.decode_chunk(read, 0, np.frombuffer(payloads[0], np.uint8), base, back, kind)
        assert back.tobytes() == target.tobytes(), name
    assert payloads == payloads[:1] * len(payloads)
    return written, payloads[0]


@pytest.mark.parametrize("codec", ORDERED)
@pytest.mark.parametrize("dtype", ["F8_E4M3", "BF16", "F32", "F64", "I8", "U16", "I32", "I64"])
def test_chunks_of_all_paths_are_the_same(
    codec: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for target, base in pairs(dtype):
        check_all_paths(codec, dtype, target, base, monkeypatch)
    for target, base in pairs_for_the_reference(dtype):
        written, payload = check_all_paths(codec, dtype, target, base, monkeypatch)
        dtype_id, shift = DTYPES[dtype].wire_id, reference.SHIFTS[CODECS[codec].wire_id]
        model = reference.read_model(written, dtype_id, target.size)
        args = (payload, base.tobytes(), dtype_id, shift, model, 0)
        assert reference.decode_residuals(*args) == target.tobytes()


@pytest.mark.parametrize("codec", ["zipnn", "tensorx", "ulprow"])
def test_blobs_of_all_paths_are_the_same(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in (*AROUND_TILES_AND_LANES, 700_000):
        target, base = weights("BF16", 2 * n, step=1e-4), None
        if CODECS[codec].needs_base:
            base = weights("BF16", 2 * n)
        blobs = []
        for name in usable_paths():
            use_path(monkeypatch, name)
            blobs.append(tc.encode(target, dtype="BF16", codec=codec, base=base))
            assert np.array_equal(tc.decode(blobs[0], base=base), target), name
        assert blobs == blobs[:1] * len(blobs)


SCRIPT = """
import sys
from pathlib import Path
import tstore_codecs as tc
from tstore_codecs.kernels.paths import PATH, PATHS
target, base, blob = (Path(name).read_bytes() for name in ("target", "base", "blob"))
assert tc.encode(target, dtype="BF16", codec="ulprow", shape=(40, 130), base=base) == blob
assert tc.decode(blob, base=base).tobytes() == target
print(next(name for name, path in PATHS.items() if path == PATH))
"""


def start_on(path: str, folder: Path) -> subprocess.Popen[str]:
    """Start `SCRIPT` in a process of its own that is told to take `path`."""
    environment = os.environ | {paths.ENVIRONMENT_VARIABLE: path}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", SCRIPT]
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=pipe, stderr=pipe, text=True
    )


def test_the_environment_chooses_the_path(tmp_path: Path) -> None:
    base = weights("BF16", 10_400)
    target = weights("BF16", 10_400, step=row_steps(40, 130))
    blob = tc.encode(target, dtype="BF16", codec="ulprow", shape=(40, 130), base=base)
    for name, content in (("target", target), ("base", base), ("blob", blob)):
        (tmp_path / name).write_bytes(bytes(content))
    running = {name: start_on(name, tmp_path) for name in (*usable_paths(), "sse9")}
    ended = {
        name: (*process.communicate(), process.returncode) for name, process in running.items()
    }
    _, complaint, code = ended.pop("sse9")
    assert code == 1
    assert "UnsupportedPathError: expected TSTORE_CODECS_PATH to be one of" in complaint
    for name, (output, complaint, code) in ended.items():
        assert (code, output.strip()) == (0, name), complaint


def test_the_widest_path_that_the_cpu_has_is_taken() -> None:
    avx2 = frozenset({"sse2", "avx", "avx2"})
    avx512 = avx2 | {"avx512f", "avx512vl", "avx512vbmi2"}
    for forced in (None, ""):
        assert paths.choose_path(forced, frozenset()) == paths.PATHS["scalar"]
        assert paths.choose_path(forced, avx2) == paths.PATHS["avx2"]
        assert paths.choose_path(forced, avx512 - {"avx512vbmi2"}) == paths.PATHS["avx2"]
        assert paths.choose_path(forced, avx512) == paths.PATHS["avx512"]
    assert paths.choose_path("scalar", avx512) == paths.PATHS["scalar"]
    assert paths.choose_path("avx512", frozenset()) == paths.PATHS["avx512"]


@pytest.mark.parametrize("forced", ["sse9", "AVX2", "avx2 ", "avx2"])
def test_paths_that_do_not_suit_are_refused(forced: str) -> None:
    with pytest.raises(tc.UnsupportedPathError, match="unset it") as caught:
        paths.choose_path(forced, frozenset({"sse2"}))
    assert vars(caught.value) == {"path": forced}
