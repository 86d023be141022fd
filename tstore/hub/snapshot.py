"""List a hub: its repositories, their revisions and files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import accumulate, pairwise

from tstore.errors import (
    HubLayoutError,
    PathConflictError,
    SourceRejectedError,
    TStoreError,
    UndecodableNameError,
    UnsafePathError,
)
from tstore.hub.layouts import MAIN, Layout, Place, detect_layout
from tstore.hub.reader import SourceFile, open_source
from tstore.hub.s3_listing import list_prefix
from tstore.hub.tree import Leaf
from tstore.hub.walk import walk_directory
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
        Absolute path of the hub without symbolic links, or ``s3://bucket/prefix``.
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
            and reject.reason != PathConflictError.__name__  # what is kept now is its file
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

    Objects below an S3 prefix are files whose path is the rest of the key, in the same layouts.
    A cache has copies in ``snapshots`` where the client's own has links. Keys that are no safe
    relative path are rejects, and so is ``a/b`` beside an object ``a`` of the same repository.

    Parameters
    ----------
    root : str
        A directory, or ``s3://bucket/prefix``.
    include, exclude : Sequence[str]
        Patterns of `fnmatch` (``*`` matches ``/`` as well), tried on ``<repo>/<path>`` and on
        ``<repo>``. With `include`, only what matches one of them is listed; what matches one of
        `exclude` is not. Exclusion wins. A directory that cannot be read is rejected whatever
        `include` says, because what it holds is not known.

    Raises
    ------
    HubNotFoundError
        `root` is missing, no directory, or cannot be listed; no object is below the prefix.
    HubLayoutError
        Two files have the same repository, revision and path.
    """
    tree = list_prefix(root) if root.startswith("s3://") else walk_directory(root)
    layout = detect_layout(tree.name, [leaf.path for leaf in tree.leaves])
    files: list[HubFile] = []
    rejects: list[Reject] = []
    for leaf in tree.leaves:
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
    files, conflicts = _part_conflicts(files)
    revisions = {(file.repo, file.revision) for file in files}
    refs, bad_refs = _list_refs(layout, tree.leaves, revisions)
    rejects = sorted(rejects + conflicts + bad_refs, key=_key)
    return Snapshot(
        _printable(tree.root), tuple(files), refs, tuple(rejects), tuple(include), tuple(exclude)
    )


def _selects(repo: str, path: str, include: Sequence[str], exclude: Sequence[str]) -> bool:
    names = (repo, f"{repo}/{path}")

    def matches(patterns: Iterable[str]) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in patterns for name in names)

    return (not include or matches(include)) and not matches(exclude)


def _list_leaf(leaf: Leaf, place: Place) -> HubFile | Reject:
    if not isinstance(leaf.found, SourceFile):
        return _reject(place, leaf.found, 0)
    try:
        _check_names(leaf.path, place, leaf.found)
        if place.revision is None:
            raise HubLayoutError(
                f"expected snapshots/<commit>/<file> in the cache of {place.repo}, "
                f"found {place.path!r}; move or exclude it"
            )
        return HubFile(place.repo, place.revision, place.path, leaf.found)
    except (UndecodableNameError, UnsafePathError, HubLayoutError) as error:
        return _reject(place, error, leaf.found.size)


def _check_names(path: str, place: Place, source: SourceFile) -> None:
    for name in (place.repo, place.revision or "", place.path, source.source):
        if name != _printable(name):
            raise UndecodableNameError(
                f"expected names in UTF-8, found {_printable(name)!r}; rename it"
            )
    # An object may have any name, and the name of a cache directory may hide "..".
    check_relative_path(path)
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
        except (SourceRejectedError, UnsafePathError, HubLayoutError) as error:
            rejects.append(_reject(Place(repo, None, f"refs/{name}"), error, 0))
    cached = set(layout.cache_repos.values())
    refs = {
        (repo, revision): tuple(sorted(names[repo, revision])) if repo in cached else (MAIN,)
        for repo, revision in sorted(revisions)
    }
    return refs, rejects


def _read_commit(leaf: Leaf, name: str) -> str:
    if not isinstance(leaf.found, SourceFile):
        raise leaf.found
    if name != _printable(name):
        raise UndecodableNameError(f"expected names in UTF-8, found ref {_printable(name)!r}")
    check_relative_path(leaf.path)
    with open_source(leaf.found) as reader:
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


def _part_conflicts(files: Sequence[HubFile]) -> tuple[list[HubFile], list[Reject]]:
    """Files that a file system can hold, and those that lie below another file as if it were a
    directory. Objects can; they could not be restored."""
    names = {(file.revision, f"{file.repo}/{file.path}") for file in files}
    kept, rejects = [], []
    for file in files:
        parents = accumulate(f"{file.repo}/{file.path}".split("/")[:-1], "{}/{}".format)
        above = next((name for name in parents if (file.revision, name) in names), None)
        if above is None:
            kept.append(file)
            continue
        error = PathConflictError(
            f"expected a directory at {above!r}, found a file, which is kept: no file system "
            f"holds it and {file.path!r} below it; rename one of them"
        )
        place = Place(file.repo, file.revision, file.path)
        rejects.append(_reject(place, error, file.source.size))
    return kept, rejects


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
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
