"""From a location in text to an object store."""

from __future__ import annotations

from collections.abc import Callable

from tstore.errors import StoreNotFoundError
from tstore.objects.base import ObjectStore
from tstore.objects.local import LocalObjects


def _open_file(uri: str) -> ObjectStore:
    return LocalObjects(uri.removeprefix("file://"))


def _open_s3(uri: str) -> ObjectStore:
    from tstore.objects.s3 import S3Objects  # boto3 takes half a second to import

    return S3Objects.from_uri(uri)


OPENERS: dict[str, Callable[[str], ObjectStore]] = {"file": _open_file, "s3": _open_s3}
"""How the locations of each scheme are opened."""


def open_objects(uri: str) -> ObjectStore:
    """Object store at a directory path, or at a location like ``file:///path`` or
    ``s3://bucket/prefix``.

    Raises
    ------
    StoreNotFoundError
        The scheme is not one of those supported.
    LocationError
        The rest is not what the scheme expects.
    """
    scheme, separator, _ = uri.partition("://")
    opener = OPENERS.get(scheme if separator else "file")
    if opener is None:
        raise StoreNotFoundError(
            f"expected a directory path or a location of {', '.join(OPENERS)}, "
            f"found scheme {scheme!r} in {uri}",
            uri=uri,
        )
    return opener(uri)
