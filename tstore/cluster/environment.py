"""Do driver and workers run the same code? A mix of versions would not even fail."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

import tstore
import tstore_codecs
from tstore.errors import VersionSkewError


@functools.cache
def code_version() -> str:
    """Version of tstore and a digest of the sources that this process imports."""
    digest = hashlib.sha256()
    for package in (tstore, tstore_codecs):
        root = Path(package.__path__[0])
        for path in sorted(root.rglob("*.py")):
            digest.update(path.relative_to(root).as_posix().encode())
            digest.update(path.read_bytes())
    return f"{tstore.__version__}+{digest.hexdigest()[:12]}"


def check_same_code(expected: str) -> None:
    """Raise `VersionSkewError` unless this process runs the code of the driver."""
    found = code_version()
    if found != expected:
        raise VersionSkewError(
            f"expected tstore {expected} as on the driver, found {found} on this worker at "
            f"{tstore.__path__[0]}; install the same package on every node",
            expected=expected,
            found=found,
        )
