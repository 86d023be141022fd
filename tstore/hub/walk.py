"""Walk a directory, through symbolic links but never out of it or in circles."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from tstore.errors import (
    BrokenSymlinkError,
    HubNotFoundError,
    SourceRejectedError,
    SourceUnreadableError,
    SymlinkEscapesError,
)
from tstore.hub.layouts import CACHE_DIRECTORY, is_above_cache
from tstore.hub.local_reader import stat_source
from tstore.hub.tree import Leaf, Tree

MAX_LINKS_PER_DIRECTORY = 1024
"""Times that links may lead to the same directory, below the same ``org/name``. Without a limit,
twenty directories that link to one another have more paths than can ever be listed."""


@dataclass(frozen=True, slots=True)
class _Directory:
    path: str
    real: str
    parent: _Directory | None


def walk_directory(root: str) -> Tree:
    """The tree below `root`, or below its ``hub`` when only that is a Hugging Face cache.

    Symbolic links are followed when their target lies inside the tree. A link that leaves it,
    leads nowhere, or leads back to a directory above itself gives a leaf with an error, and so
    does a directory that cannot be listed.

    Parameters
    ----------
    root : str
        Path of a directory.

    Raises
    ------
    HubNotFoundError
        `root` is missing, no directory, or cannot be listed.
    """
    try:
        os.scandir(root).close()
    except OSError as error:
        raise HubNotFoundError(
            f"expected a hub directory at {root!r}, found: {error.strerror}; check the path"
        ) from error
    top = os.path.abspath(root)
    below = os.path.join(top, CACHE_DIRECTORY)
    if is_above_cache(_directories(top), _directories(below)):
        top = below
    real_top = os.path.realpath(top)
    return Tree(real_top, os.path.basename(top), list(_walk(real_top)))


def _directories(path: str) -> list[str]:
    try:
        return [name for name in os.listdir(path) if os.path.isdir(os.path.join(path, name))]
    except OSError:
        return []  # not lost: the walk rejects what it cannot list


def _walk(root: str) -> Iterator[Leaf]:
    n_links: Counter[tuple[str, ...]] = Counter()
    stack = [_Directory("", root, None)]
    while stack:
        directory = stack.pop()
        try:
            with os.scandir(directory.real) as scan:
                entries = list(scan)
        except OSError as error:
            yield Leaf(directory.path, _unreadable(directory.real, error), hides_tree=True)
            continue
        for entry in entries:
            path = f"{directory.path}/{entry.name}" if directory.path else entry.name
            try:
                found = _visit(entry, path, directory, root, n_links)
            except SourceRejectedError as error:
                yield Leaf(path, error, hides_tree=os.path.isdir(entry.path))
                continue
            if isinstance(found, Leaf):
                yield found
            else:
                stack.append(found)


def _visit(
    entry: os.DirEntry[str],
    path: str,
    parent: _Directory,
    root: str,
    n_links: Counter[tuple[str, ...]],
) -> Leaf | _Directory:
    try:
        is_link = entry.is_symlink()
        real = _resolve_link(entry.path, root) if is_link else entry.path
        if not entry.is_dir():
            return Leaf(path, stat_source(real))
    except OSError as error:
        raise _unreadable(entry.path, error) from error
    if is_link:
        _check_circle(entry.path, real, parent)
        key = (*path.split("/")[:2], real)
        n_links[key] += 1
        if n_links[key] > MAX_LINKS_PER_DIRECTORY:
            raise BrokenSymlinkError(
                f"expected at most {MAX_LINKS_PER_DIRECTORY} links to {real!r}, "
                f"found one more at {entry.path!r}; do the links form a net?"
            )
    return _Directory(path, real, parent)


def _resolve_link(link: str, root: str) -> str:
    try:
        real = os.path.realpath(link, strict=True)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            raise
        raise BrokenSymlinkError(
            f"expected {link!r} to lead to a file, found a link to {os.readlink(link)!r}: "
            f"{error.strerror}; repair or remove it"
        ) from error
    if os.path.commonpath((root, real)) != root:
        raise SymlinkEscapesError(
            f"expected {link!r} to stay inside {root!r}, found a link to {real!r}; "
            "copy the target into the hub"
        )
    return real


def _check_circle(link: str, real: str, parent: _Directory) -> None:
    above: _Directory | None = parent
    while above is not None:
        if above.real == real:
            raise BrokenSymlinkError(
                f"expected {link!r} to lead to other files, found a circle: it links to {real!r}, "
                "which it lies in; remove it"
            )
        above = above.parent


def _unreadable(path: str, error: OSError) -> SourceUnreadableError:
    return SourceUnreadableError(
        f"expected to read {path!r}, found {error.strerror or error}; "
        "check its permissions and the disk"
    )
