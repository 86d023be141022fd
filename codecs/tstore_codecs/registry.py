"""Codecs by name and by wire id."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from tstore_codecs.base import Codec
from tstore_codecs.bitx import BitX
from tstore_codecs.errors import DuplicateCodecError, UnknownCodecError
from tstore_codecs.ordered import FMPP, ULPack, ULProw
from tstore_codecs.stored import Stored
from tstore_codecs.tensorx import TensorX
from tstore_codecs.zipnn import ZipNN
from tstore_codecs.zstd import Zstd

ASSIGNED: Final = MappingProxyType(
    {
        0: "stored",
        1: "zstd",
        2: "zipnn",
        3: "bitx",
        4: "tensorx",
        5: "fmpp",
        6: "ulpack",
        7: "ulprow",
    }
)
"""Every wire id ever given out, built or not. A retired codec keeps its line."""


def index_codecs(codecs: Iterable[Codec]) -> Mapping[str, Codec]:
    """Return `codecs` by name, in order of their wire ids.

    Raises
    ------
    DuplicateCodecError
        If two of them share a wire id, or one has a wire id assigned to another name.
    """
    by_name: dict[str, Codec] = {}
    for codec in sorted(codecs, key=lambda codec: codec.wire_id):
        owner = ASSIGNED.get(codec.wire_id)
        if owner != codec.name:
            raise DuplicateCodecError(
                f"expected wire id {codec.wire_id} to be assigned to {codec.name!r}; "
                f"it belongs to {owner!r}: give the codec a line of its own in ASSIGNED"
            )
        if codec.name in by_name:
            raise DuplicateCodecError(f"expected one codec named {codec.name!r}; found two")
        by_name[codec.name] = codec
    return MappingProxyType(by_name)


CODECS: Final = index_codecs(
    (Stored(), Zstd(), ZipNN(), BitX(), TensorX(), FMPP(), ULPack(), ULProw())
)
"""Every codec of this build by name."""


def available() -> tuple[str, ...]:
    """Return the names of all codecs, in order of their wire ids."""
    return tuple(CODECS)


def codec_by_name(name: str) -> Codec:
    """Return the codec called `name`, or raise `UnknownCodecError`."""
    found = CODECS.get(name)
    if found is None:
        raise UnknownCodecError(
            f"expected one of {', '.join(CODECS)}; found codec {name!r}", codec=name
        )
    return found


def codec_by_wire_id(wire_id: int) -> Codec:
    """Return the codec numbered `wire_id`, or raise `UnknownCodecError`."""
    name = ASSIGNED.get(wire_id)
    if name is None or name not in CODECS:
        raise UnknownCodecError(
            f"this build has no codec with wire id {wire_id} ({name or 'never assigned'}): "
            "a newer tstore_codecs may have it",
            wire_id=wire_id,
        )
    return CODECS[name]
