"""How kernels are compiled, and when compiled code on disk is still that of these sources."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from numba import njit

Decorator: TypeAlias = Callable[[Callable[..., Any]], Any]


@functools.cache
def sources_digest(folder: Path) -> str:
    """Return a digest of all modules of a folder: they are compiled into each other."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def kernels_in(folder: Path) -> Decorator:
    """Return the decorator of the kernels that lie in a folder.

    It compiles a function on its first call, without the interpreter lock, and keeps the code on
    disk. numba takes such code for current if the time and the size of the function's own file
    have not changed. Here it also depends on the contents of all modules of the folder: a wheel
    gives every file the same time, and a kernel, a constant or a tuple may have changed in
    another file.
    """

    def kernel(function: Callable[..., Any]) -> Any:
        dispatcher: Any = njit(nogil=True, cache=True, error_model="numpy")(function)
        index = dispatcher._cache._cache_file
        index._source_stamp = (index._source_stamp, sources_digest(folder))
        return dispatcher

    return kernel


kernel = kernels_in(Path(__file__).parent)
