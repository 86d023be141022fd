"""From a location in text to an object store."""

from __future__ import annotations

from tstore.errors import StoreNotFoundError
from tstore.objects.base import ObjectStore
from tstore.objects.local import LocalObjects


def open_objects(uri: str) -> ObjectStore:
    """Object store at a directory path (``file://`` allowed).

    Raises
    ------
    StoreNotFoundError
        The scheme is not one of those supported.
    """
    scheme, separator, rest = uri.partition("://")
    if not separator:
        return LocalObjects(uri)
    if scheme == "file":
        return LocalObjects(rest)
    raise StoreNotFoundError(
        f"expected a directory path or file:// location, found scheme {scheme!r} in {uri}", uri=uri
    )
