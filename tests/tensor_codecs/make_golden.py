"""Write the golden blobs that do not exist yet: ``python -m tensor_codecs.make_golden`` in tests/.

A golden blob is never rewritten: it stands for every blob of its version that is out there. New
codecs add files; a new format version adds a folder.
"""

from pathlib import Path
from typing import NamedTuple

import tstore_codecs as tc
from tensor_codecs.samples import weights
from tstore_codecs.registry import CODECS

FOLDER = Path(__file__).parent / "golden"
VERSION_FOLDER = FOLDER / f"v{tc.FORMAT_VERSION}"


class Case(NamedTuple):
    """One golden blob and the inputs stored beside it."""

    codec: str
    dtype: str
    nbytes: int

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


INPUTS = {"BF16": 10_241, "F32": 6_003, "I64": 2_400, "OPAQUE": 900}
CASES = [Case(codec, dtype, n) for codec in tc.available() for dtype, n in INPUTS.items()]


def write_missing() -> list[Path]:
    """Write what is missing; return what was written."""
    VERSION_FOLDER.mkdir(parents=True, exist_ok=True)
    written = []
    for case in CASES:
        files = {case.target: weights(case.dtype, case.nbytes, step=5e-3).tobytes()}
        if case.base is not None:
            files[case.base] = weights(case.dtype, case.nbytes).tobytes()
        for path, content in files.items():
            if not path.exists():
                path.write_bytes(content)
                written.append(path)
        if not case.blob.exists():
            base = case.base.read_bytes() if case.base else None
            target = case.target.read_bytes()
            case.blob.write_bytes(tc.encode(target, dtype=case.dtype, codec=case.codec, base=base))
            written.append(case.blob)
    return written


if __name__ == "__main__":
    for path in write_missing():
        print(path)
