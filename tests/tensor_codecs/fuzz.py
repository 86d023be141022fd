"""Feed damaged and invented blobs to the decoders: ``python -m tensor_codecs.fuzz`` in tests/.

Each case is decoded on two paths, with every array that the blob can point into lying against
memory that must not be touched. A case may end in a `CodecError` or in bytes of the right length,
the same on both paths; anything else, a crash included, is a defect. A child process does the work
and keeps the case at hand in a file, so that the one which killed it is known.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import ctypes
import dataclasses
import mmap
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import tstore_codecs as tc
from tensor_codecs.mutations import Case, cases
from tstore_codecs import entropy, forms, frame, ordered
from tstore_codecs.buffers import ByteArray, as_bytes
from tstore_codecs.kernels.paths import PATH, Scalar
from tstore_codecs.kernels.paths import Path as KernelPath
from tstore_codecs.model import ResidualModel

_LIBC = ctypes.CDLL(None, use_errno=True)
_PROT_NONE = 0


def fenced(array: npt.NDArray[Any], at_end: bool) -> npt.NDArray[Any]:
    """Return a copy of `array` that starts or ends where a page begins that no one may read."""
    page = mmap.PAGESIZE
    room = -(-max(array.nbytes, 1) // page) * page
    memory = mmap.mmap(-1, room + 2 * page)
    first = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for fence in (first, first + page + room):
        if _LIBC.mprotect(ctypes.c_void_p(fence), ctypes.c_size_t(page), _PROT_NONE):
            raise OSError(ctypes.get_errno(), "mprotect")
    offset = page + (room - array.nbytes if at_end else 0)
    copy: npt.NDArray[Any] = np.frombuffer(memory, array.dtype, array.size, offset)
    copy[:] = array
    copy.flags.writeable = array.flags.writeable
    return copy


def fence_model(model: Any, at_end: bool) -> Any:
    """Return `model` with its arrays fenced."""
    if not isinstance(model, ResidualModel):
        return model
    contexts = model.contexts._replace(
        classes=fenced(model.contexts.classes, at_end),
        choice=fenced(model.contexts.choice, at_end),
    )
    fenced_model = dataclasses.replace(model, contexts=contexts)
    fenced_model.__dict__["slots"] = fenced(model.slots, at_end)
    return fenced_model


def decode_unchecked(blob: bytes, base: ByteArray, at_end: bool | None = None) -> bytes:
    """Return what every chunk of `blob` decodes to, whatever checksums of chunks say.

    Parameters
    ----------
    at_end
        Where to fence the arrays of the model; None: not at all.
    """
    found = frame.read_frame(as_bytes(blob))
    if found.codec.needs_base and base.size != found.info.raw_nbytes:
        raise tc.WrongBaseError("no base of this size")
    model = None
    if np.any(found.forms == forms.Form.CODED):
        model = found.codec.read_model(found.model, found.dtype, found.info.raw_nbytes)
        if at_end is not None:
            model = fence_model(model, at_end)
    out = np.empty(found.info.raw_nbytes, np.uint8)
    for i in range(found.info.n_chunks):
        start, end = found.raw_range(i)
        part = as_bytes(base[start:end])
        forms.decode_chunk(
            found.codec, model, start, found.chunk(i), part, out[start:end], found.dtype
        )
    return out.tobytes()


@contextlib.contextmanager
def fenced_on(path: KernelPath, at_end: bool) -> Iterator[None]:
    """Let entropy coders run on `path`, with the words of each stream fenced."""
    read_stream = entropy.read_stream

    def read_fenced(stream: ByteArray, n: int) -> tuple[entropy.States, entropy.Words]:
        states, words = read_stream(stream, n)
        return states, fenced(words, at_end)

    vars(entropy).update(PATH=path, read_stream=read_fenced)
    vars(ordered).update(PATH=path)
    try:
        yield
    finally:
        vars(entropy).update(PATH=PATH, read_stream=read_stream)
        vars(ordered).update(PATH=PATH)


def outcome(case: Case, path: KernelPath, at_end: bool) -> bytes | str:
    """Return what `case` decodes to on `path`, or the error it ends in."""
    with fenced_on(path, at_end):
        try:
            return decode_unchecked(case.blob, case.base, at_end)
        except tc.CodecError as error:
            return f"{type(error).__name__}: {error}"


def check(case: Case, at_end: bool) -> str:
    """Decode `case` on both paths; return a word for how it ended."""
    found, twin = outcome(case, PATH, at_end), outcome(case, Scalar(), not at_end)
    assert found == twin, f"{case.name}: paths differ: {found[:80]!r} {twin[:80]!r}"
    if isinstance(found, str):
        return found.split(":")[0]
    return "bytes"


def work(seconds: float, seed: int, case_file: str) -> None:
    """Check cases until the time is up; print how they ended."""
    ends: collections.Counter[str] = collections.Counter()
    rng = np.random.default_rng(seed)
    deadline = time.process_time() + seconds
    with open(case_file, "wb") as latest:
        for n, case in enumerate(cases(rng)):
            latest.seek(0)
            pickle.dump(case, latest)
            latest.flush()
            ends[f"{case.kind} {check(case, bool(n % 2))}"] += 1
            if time.process_time() > deadline:
                break
    for end, count in sorted(ends.items()):
        print(f"{count:9} {end}")


def main() -> int:
    """Run the children; return how many failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="CPU time for each path")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--paths", nargs="+", default=["avx512", "avx2", "scalar"])
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        work(arguments.seconds, arguments.seed, arguments.child)
        return 0
    failed = 0
    for path in arguments.paths:
        case_file = Path(tempfile.gettempdir()) / f"fuzz-{path}-{arguments.seed}.pickle"
        command = [sys.executable, "-X", "faulthandler", "-m", "tensor_codecs.fuzz"]
        command += ["--seconds", str(arguments.seconds), "--seed", str(arguments.seed)]
        child = subprocess.run(
            [*command, "--child", str(case_file)],
            env=os.environ | {"TSTORE_CODECS_PATH": path},
            check=False,
        )
        print(f"{path}: exit code {child.returncode}; last case in {case_file}", flush=True)
        failed += child.returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main())
