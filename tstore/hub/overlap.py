"""Whether a hub and a store are apart from one another."""

from __future__ import annotations

import os
from pathlib import Path


def hub_overlaps(hub_root: str, store_uri: str) -> bool:
    """Whether one of the two is, or lies in, the other.

    Parameters
    ----------
    hub_root, store_uri : str
        Paths of directories (``file://`` allowed), which need not exist, or ``s3://bucket/prefix``;
        equal buckets are taken to be of one endpoint. A directory never overlaps a bucket.
    """
    hub, store = _names(hub_root), _names(store_uri)
    shared = min(len(hub), len(store))
    return hub[:shared] == store[:shared]


def _names(location: str) -> tuple[str, ...]:
    """Scheme, and the names on the way from the root of the file system or of all buckets."""
    scheme, separator, rest = location.partition("://")
    if separator and scheme != "file":
        return scheme, *filter(None, rest.split("/"))
    return "file", *Path(os.path.realpath(rest if separator else location)).parts
