"""How kernels are compiled, and when compiled code on disk is still that of these sources."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import njit


@functools.cache
def sources_digest() -> str:
    """Return a digest of all kernels: they are compiled into each other across files."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def kernel(function: Callable[..., Any]) -> Any:
    """Compile `function` on its first call, without the interpreter lock, cached on disk.

    numba takes cached code for current if the time and the size of the function's own file have
    not changed. Here it also depends on the contents of all kernels: a wheel gives every file the
    same time, and a kernel may have changed in another file.
    """
    dispatcher: Any = njit(nogil=True, cache=True, error_model="numpy")(function)
    index = dispatcher._cache._cache_file
    index._source_stamp = (index._source_stamp, sources_digest())
    return dispatcher
