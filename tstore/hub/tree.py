"""What a walk of a hub finds, wherever the hub lies."""

from __future__ import annotations

from dataclasses import dataclass

from tstore.errors import SourceRejectedError
from tstore.hub.source import SourceFile


@dataclass(frozen=True, slots=True)
class Leaf:
    """What a walk found at `path`, which is anything but a directory it could enter.

    Attributes
    ----------
    path : str
        Relative to the root of the walk, with ``/`` between the names. Whether it is safe is for
        the reader of the tree to check.
    found : SourceFile or SourceRejectedError
        The file, or why it cannot be used.
    hides_tree : bool
        It is a directory that was not entered, so there may be files below.
    """

    path: str
    found: SourceFile | SourceRejectedError
    hides_tree: bool = False


@dataclass(frozen=True)
class Tree:
    """All files of a hub.

    Attributes
    ----------
    root : str
        Absolute path without symbolic links, or ``s3://bucket/prefix``.
    name : str
        Last name of the root, as the caller wrote it.
    leaves : list[Leaf]
        In no particular order.
    """

    root: str
    name: str
    leaves: list[Leaf]
