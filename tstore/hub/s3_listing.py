"""List the objects below an S3 prefix as a hub."""

from __future__ import annotations

from collections.abc import Iterable

from tstore.errors import HubNotFoundError
from tstore.hub.layouts import CACHE_DIRECTORY, is_above_cache
from tstore.hub.source import SourceFile
from tstore.hub.tree import Leaf, Tree
from tstore.objects import ObjectInfo, open_objects


def list_prefix(uri: str) -> Tree:
    """The tree below ``s3://bucket/prefix``, or below its ``hub``; see `walk_directory`.

    There are no symbolic links, and no directories but in the names. Empty objects whose key ends
    in ``/`` stand for directories and are left out.

    Raises
    ------
    HubNotFoundError
        No object is below the prefix.
    BucketNotFoundError, AccessDeniedError, LocationError
        The bucket is missing, may not be listed, or the text names none.
    """
    root = "s3://" + uri.removeprefix("s3://").rstrip("/")
    found = list(open_objects(root).list(""))
    if not found:
        raise HubNotFoundError(f"expected objects below {root}/, found none; check the prefix")
    return tree_of(root, found)


def tree_of(root: str, objects: Iterable[ObjectInfo]) -> Tree:
    """The tree of these objects, whose keys are relative to `root`."""
    # The root may have such a marker too; the rest of its key is then empty.
    files = {o.key: o for o in objects if o.nbytes or not f"/{o.key}".endswith("/")}
    below = f"{CACHE_DIRECTORY}/"
    inside = {key.removeprefix(below): info for key, info in files.items() if key.startswith(below)}
    if is_above_cache(_directories(files), _directories(inside)):
        root, files = f"{root}/{CACHE_DIRECTORY}", inside
    leaves = [
        Leaf(key, SourceFile(f"{root}/{key}", info.nbytes, f"{info.nbytes}:{info.version}"))
        for key, info in files.items()
    ]
    return Tree(root, root.rpartition("/")[2], leaves)


def _directories(keys: Iterable[str]) -> set[str]:
    return {top for top, slash, _ in (key.partition("/") for key in keys) if slash}
