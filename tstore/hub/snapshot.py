"""List a hub: its repositories, their revisions and files."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import pairwise

from tstore.errors import (
    HubLayoutError,
    HubNotFoundError,
    SourceRejectedError,
    TStoreError,
    UndecodableNameError,
    UnsafePathError,
)
from tstore.hub.layouts import MAIN, Layout, Place, cache_repo, detect_layout
from tstore.hub.reader import SourceFile, SourceReader, stat_source
from tstore.hub.walk import Leaf, walk
from tstore.ids import check_relative_path

MAX_REF_NBYTES = 256
"""A ref holds a commit, which is 40 hex digits."""


@dataclass(frozen=True)
class HubFile:
    """A file of a repository; `path` is relative to it, with ``/`` between the names."""

    repo: str
    revision: str
    path: str
    source: SourceFile


@dataclass(frozen=True)
class Reject:
    """A file or directory that cannot be ingested.

    Attributes
    ----------
    repo, revision, path : str
        Where it lies; bytes that are not UTF-8 are written as ``\\xNN``. The revision is empty
        where the layout gives none.
    reason : str
        Name of the error class.
    message : str
        Expected, found, what to do.
    size : int
        Bytes; 0 when unknown.
    """

    repo: str
    revision: str
    path: str
    reason: str
    message: str
    size: int


@dataclass(frozen=True)
class Snapshot:
    """What a hub holds.

    Attributes
    ----------
    root : str
        Absolute path of the hub, without symbolic links.
    files : tuple[HubFile, ...]
        Sorted by (repo, revision, path), which are unique.
    refs : dict[tuple[str, str], tuple[str, ...]]
        Sorted names of each (repo, revision) in `files`.
    rejects : tuple[Reject, ...]
        Sorted by (repo, revision, path).
    include, exclude : tuple[str, ...]
        The patterns of `list_hub`.
    """

    root: str
    files: tuple[HubFile, ...]
    refs: dict[tuple[str, str], tuple[str, ...]]
    rejects: tuple[Reject, ...]
    include: tuple[str, ...]
    exclude: tuple[str, ...]

    def says_nothing_of(self, repo: str, revision: str, path: str) -> bool:
        """Whether a file that is not in `files` may yet be in the hub as it was.

        Either the patterns left it out, or it is, or lies below, what was rejected.
        """
        if not _selects(repo, path, self.include, self.exclude):
            return True
        return any(
            reject.repo == repo
            and reject.revision in (revision, "")
            and (path == reject.path or path.startswith(f"{reject.path}/"))
            for reject in self.rejects
        )


def list_hub(root: str, *, include: Sequence[str] = (), exclude: Sequence[str] = ()) -> Snapshot:
    r"""List the files of a hub, in whichever of three layouts it is.

    **Hugging Face cache**: directories ``models--org--name`` (also ``datasets--``, ``spaces--``)
    hold ``snapshots/<commit>/...`` and ``refs/<name>``. The repository is ``org/name``
    (``datasets/org/name``, ``spaces/org/name``), the revision is the commit, and ``refs`` names
    it. The rest of the cache is its bookkeeping and not part of the hub: ``blobs`` that no
    snapshot links to, ``.no_exist``, ``.locks``. `root` is the ``hub`` directory or the one above
    it; what lies beside ``hub`` (tokens, other caches) is never read.

    **One repository**: the root itself holds a model file (``*.safetensors``, ``*.bin``,
    ``*.gguf``, ``*.pt``, ``*.pth``, ``config.json``). The repository has the name of the
    directory.

    **Directory hub**: a directory in the root that itself holds a model file is the repository
    ``name``. In others, ``org``, each directory is the repository ``org/name`` with everything
    below; files lying directly in ``org`` form the repository ``org``, and those in the root
    ``@hub``. Other directories in the root of a cache are read this way, too.

    The last two have the one revision ``main``, with the one ref ``main``.

    Every regular file is in `files` or in `rejects`, except what is below ``.git/`` and
    ``.cache/`` at the top of a repository, a directory ``org`` or the root. Symbolic links are
    followed when their target is inside the hub. Empty directories are not kept.

    Parameters
    ----------
    root : str
        A directory.
    include, exclude : Sequence[str]
        Patterns of `fnmatch` (``*`` matches ``/`` as well), tried on ``<repo>/<path>`` and on
        ``<repo>``. With `include`, only what matches one of them is listed; what matches one of
        `exclude` is not. Exclusion wins. A directory that cannot be read is rejected whatever
        `include` says, because what it holds is not known.

    Raises
    ------
    HubNotFoundError
        `root` is missing, no directory, or cannot be listed.
    HubLayoutError
        Two files have the same repository, revision and path.
    """
    _check_directory(root)
    top = _cache_root(os.path.abspath(root))
    real_top = os.path.realpath(top)
    leaves = list(walk(real_top))
    layout = detect_layout(os.path.basename(top), [leaf.path for leaf in leaves])
    files: list[HubFile] = []
    rejects: list[Reject] = []
    for leaf in leaves:
        place = layout.place(leaf.path)
        if place is None:
            continue
        # What a directory that cannot be read holds is not known: no pattern may hide it.
        wanted = () if leaf.hides_tree else include
        if not _selects(place.repo, place.path, wanted, exclude):
            continue
        result = _list_leaf(leaf, place)
        if isinstance(result, HubFile):
            files.append(result)
        else:
            rejects.append(result)
    files.sort(key=_key)
    _check_unique(files)
    refs, bad_refs = _list_refs(layout, leaves, {(file.repo, file.revision) for file in files})
    rejects = sorted(rejects + bad_refs, key=_key)
    return Snapshot(
        _printable(real_top), tuple(files), refs, tuple(rejects), tuple(include), tuple(exclude)
    )


def _check_directory(root: str) -> None:
    try:
        os.scandir(root).close()
    except OSError as error:
        raise HubNotFoundError(
            f"expected a hub directory at {root!r}, found: {error.strerror}; check the path"
        ) from error


def _cache_root(root: str) -> str:
    """`root`, or its ``hub`` directory if that is the Hugging Face cache and `root` is not."""
    hub = os.path.join(root, "hub")
    if os.path.isdir(hub) and _holds_cache(hub) and not _holds_cache(root):
        return hub
    return root


def _holds_cache(directory: str) -> bool:
    try:
        names = os.listdir(directory)
    except OSError:
        return False  # not lost: the walk rejects what it cannot list
    return any(
        cache_repo(name) is not None and os.path.isdir(os.path.join(directory, name))
        for name in names
    )


def _selects(repo: str, path: str, include: Sequence[str], exclude: Sequence[str]) -> bool:
    names = (repo, f"{repo}/{path}")

    def matches(patterns: Iterable[str]) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in patterns for name in names)

    return (not include or matches(include)) and not matches(exclude)


def _list_leaf(leaf: Leaf, place: Place) -> HubFile | Reject:
    if leaf.error is not None:
        return _reject(place, leaf.error, 0)
    size = 0
    try:
        source = stat_source(leaf.real)
        size = source.size
        _check_names(place, source)
        if place.revision is None:
            raise HubLayoutError(
                f"expected snapshots/<commit>/<file> in the cache of {place.repo}, "
                f"found {place.path!r}; move or exclude it"
            )
        return HubFile(place.repo, place.revision, place.path, source)
    except (SourceRejectedError, UnsafePathError, HubLayoutError) as error:
        return _reject(place, error, size)


def _check_names(place: Place, source: SourceFile) -> None:
    for name in (place.repo, place.revision or "", place.path, source.source):
        if name != _printable(name):
            raise UndecodableNameError(
                f"expected names in UTF-8, found {_printable(name)!r}; rename it"
            )
    check_relative_path(f"{place.repo}/{place.path}")


def _list_refs(
    layout: Layout, leaves: Iterable[Leaf], revisions: set[tuple[str, str]]
) -> tuple[dict[tuple[str, str], tuple[str, ...]], list[Reject]]:
    """Names of `revisions`; refs to other ones are left out."""
    names: dict[tuple[str, str], list[str]] = defaultdict(list)
    rejects = []
    repos = {repo for repo, _ in revisions}
    for leaf in leaves:
        ref = layout.ref(leaf.path)
        if ref is None or ref[0] not in repos:
            continue
        repo, name = ref
        try:
            names[repo, _read_commit(leaf, name)].append(name)
        except (SourceRejectedError, HubLayoutError) as error:
            rejects.append(_reject(Place(repo, None, f"refs/{name}"), error, 0))
    cached = set(layout.cache_repos.values())
    refs = {
        (repo, revision): tuple(sorted(names[repo, revision])) if repo in cached else (MAIN,)
        for repo, revision in sorted(revisions)
    }
    return refs, rejects


def _read_commit(leaf: Leaf, name: str) -> str:
    if leaf.error is not None:
        raise leaf.error
    if name != _printable(name):
        raise UndecodableNameError(f"expected names in UTF-8, found ref {_printable(name)!r}")
    with SourceReader(stat_source(leaf.real)) as reader:
        content = reader.read(0, min(reader.file.size, MAX_REF_NBYTES)).tobytes()
    commit = content.strip()
    if not commit.isalnum():
        raise HubLayoutError(f"expected a commit in ref {name!r}, found {content[:40]!r}")
    return commit.decode("ascii")


def _check_unique(files: Sequence[HubFile]) -> None:
    for one, other in pairwise(files):
        if _key(one) == _key(other):
            raise HubLayoutError(
                f"expected one file {one.path!r} in {one.repo}@{one.revision}, found two: "
                f"{one.source.source!r} and {other.source.source!r}; rename a directory"
            )


def _reject(place: Place, error: TStoreError, size: int) -> Reject:
    return Reject(
        repo=_printable(place.repo),
        revision=_printable(place.revision or ""),
        path=_printable(place.path),
        reason=type(error).__name__,
        message=str(error),
        size=size,
    )


def _key(item: HubFile | Reject) -> tuple[str, str, str]:
    return item.repo, item.revision, item.path


def _printable(name: str) -> str:
    """`name` with the bytes that are not UTF-8 written as ``\\xNN``."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")
