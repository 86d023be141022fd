"""Which instructions the entropy coder runs on; the bytes are the same on every path.

A path is passed to kernels as a value whose *type* selects the code, so that each path has its own
entry in numba's cache on disk.
"""

import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

import llvmlite.binding as llvm
from numba.core import config

from tstore_codecs.errors import UnsupportedPathError

ENVIRONMENT_VARIABLE: Final = "TSTORE_CODECS_PATH"


class Scalar(NamedTuple):
    """Plain loops: any machine. The twin of the others."""

    width: int = 1


class Avx2(NamedTuple):
    """Vectors of 8 lanes; gathers and permutes of AVX2."""

    width: int = 8


class Avx512(NamedTuple):
    """Vectors of 16 lanes; compress and expand of AVX-512 VBMI2. LLVM spells them out elsewhere."""

    width: int = 16


Path: TypeAlias = Scalar | Avx2 | Avx512

PATHS: Final[Mapping[str, Path]] = MappingProxyType(
    {"avx512": Avx512(), "avx2": Avx2(), "scalar": Scalar()}
)
_NEEDS: Final[Mapping[str, set[str]]] = {
    "avx512": {"avx512f", "avx512vl", "avx512vbmi2"},
    "avx2": {"avx2"},
    "scalar": set(),
}


def compiler_features() -> frozenset[str]:
    """Return the CPU features that numba compiles for: the host's, or those forced on numba."""
    settings: Any = config
    if settings.CPU_FEATURES is not None:
        forced = settings.CPU_FEATURES.split(",")
        return frozenset(feature[1:] for feature in forced if feature.startswith("+"))
    if settings.CPU_NAME == "generic":
        return frozenset()
    return frozenset(name for name, there in llvm.get_host_cpu_features().items() if there)


def choose_path(forced: str | None, features: frozenset[str]) -> Path:
    """Return the path called `forced`, or the widest that `features` allow.

    Raises
    ------
    UnsupportedPathError
        If `forced` is no path, or is ``avx2`` without that feature. ``avx512`` runs anywhere,
        slowly: that lets any machine test it.
    """
    if not forced:
        return next(path for name, path in PATHS.items() if features >= _NEEDS[name])
    if forced not in PATHS or (forced == "avx2" and "avx2" not in features):
        raise UnsupportedPathError(
            f"expected {ENVIRONMENT_VARIABLE} to be one of {', '.join(PATHS)} and to suit the "
            f"CPU; found {forced!r}: unset it",
            path=forced,
        )
    return PATHS[forced]


PATH: Final = choose_path(os.environ.get(ENVIRONMENT_VARIABLE), compiler_features())
"""The path of this process."""
