"""Write the golden blobs that do not exist yet: ``python -m tensor_codecs.make_golden`` in tests/.

A golden blob is never rewritten: it stands for every blob of its version that is out there. New
codecs add files; a new format version adds a folder.
"""

from pathlib import Path
from typing import NamedTuple

import tstore_codecs as tc
from tensor_codecs.samples import FloatArray, row_steps, weights
from tstore_codecs.registry import CODECS

FOLDER = Path(__file__).parent / "golden"
VERSION_FOLDER = FOLDER / f"v{tc.FORMAT_VERSION}"


class Input(NamedTuple):
    """How a target and its base are made, and the shape that writers are told."""

    nbytes: int
    step: float | FloatArray
    shape: tuple[int, ...] | None = None


class Case(NamedTuple):
    """One golden blob and the inputs stored beside it."""

    codec: str
    dtype: str
    shape: tuple[int, ...] | None

    @property
    def blob(self) -> Path:
        """Where the blob is."""
        return VERSION_FOLDER / f"{self.codec}-{self.dtype}.blob"

    @property
    def target(self) -> Path:
        """Where its target is."""
        return VERSION_FOLDER / f"{self.dtype}.target"

    @property
    def base(self) -> Path | None:
        """Where its base is, if the codec needs one."""
        return VERSION_FOLDER / f"{self.dtype}.base" if CODECS[self.codec].needs_base else None

    def encode(self) -> bytes:
        """Return the blob that this build writes."""
        return tc.encode(
            self.target.read_bytes(),
            dtype=self.dtype,
            codec=self.codec,
            shape=self.shape,
            base=self.base.read_bytes() if self.base else None,
        )


INPUTS = {
    "BF16": Input(12_800, row_steps(40, 160), (40, 160)),  # 32 lanes, classes of rows
    "F16": Input(10_001, 1e-3),  # tables by exponent, an incomplete element
    "F32": Input(12_480, row_steps(24, 130), (24, 130)),  # 4 lanes, raw bits in two passes
    "F8_E4M3": Input(6_400, 10 * row_steps(20, 320), (20, 320)),
    "I64": Input(2_405, 5e-3),
    "OPAQUE": Input(901, 5e-3),
    "U8": Input(100, 0.25),  # raw
}
CASES = [Case(codec, dtype, own.shape) for codec in tc.available() for dtype, own in INPUTS.items()]


def write_missing() -> list[Path]:
    """Write what is missing; return what was written."""
    VERSION_FOLDER.mkdir(parents=True, exist_ok=True)
    written = []

    def write(path: Path, content: bytes) -> None:
        path.write_bytes(content)
        written.append(path)

    for dtype, own in INPUTS.items():
        for suffix, step in {"target": own.step, "base": 0.0}.items():
            path = VERSION_FOLDER / f"{dtype}.{suffix}"
            if not path.exists():
                write(path, weights(dtype, own.nbytes, step=step).tobytes())
    for case in CASES:
        if not case.blob.exists():
            write(case.blob, case.encode())
    return written


if __name__ == "__main__":
    for path in write_missing():
        print(path)
