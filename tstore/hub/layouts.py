"""Which repository a path of a hub belongs to: a pure function of the paths."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

MAIN = "main"
"""Revision, and its only ref, of repositories that have no revisions."""
HUB_REPO = "@hub"
"""Repository of the files that lie directly in the root of a hub."""
CACHE_DIRECTORY = "hub"
"""Where a Hugging Face cache lies in the directory that also holds tokens and other caches."""

_MODEL_SUFFIXES = (".safetensors", ".bin", ".gguf", ".pt", ".pth")
_MODEL_NAME = "config.json"
_CACHE_NAME = re.compile(r"(models|datasets|spaces)--(.+)")
_CACHE_BOOKKEEPING = frozenset(("blobs", "refs", ".no_exist"))
_CACHE_LOCKS = ".locks"
_SKIPPED = frozenset((".git", ".cache"))


@dataclass(frozen=True)
class Place:
    """Where a path of the hub belongs; `revision` is None when the layout gives it none."""

    repo: str
    revision: str | None
    path: str


@dataclass(frozen=True)
class Layout:
    """How the paths of one hub map to repositories. `tstore.hub.snapshot` has the rules.

    Attributes
    ----------
    single_repo : str or None
        Name of the repository when the hub is just one.
    cache_repos : dict[str, str]
        Directory name to repository, for those that a Hugging Face cache made.
    model_directories : frozenset[str]
        Directories in the root that are themselves a repository.
    """

    single_repo: str | None
    cache_repos: dict[str, str]
    model_directories: frozenset[str]

    def place(self, path: str) -> Place | None:
        """Place of a path relative to the root, or None when it is not part of the hub."""
        parts = path.split("/")
        if parts[0] in self.cache_repos and len(parts) > 1:
            return _place_in_cache(self.cache_repos[parts[0]], parts[1:])
        if self.cache_repos and parts[0] == _CACHE_LOCKS and len(parts) > 1:
            return None
        if self.single_repo is not None:
            return None if _is_skipped(parts[:1], parts) else Place(self.single_repo, MAIN, path)
        n_repo = 1 if parts[0] in self.model_directories else 2
        n_repo = min(n_repo, len(parts) - 1)
        if _is_skipped(parts[: n_repo + 1], parts):
            return None
        repo = "/".join(parts[:n_repo]) if n_repo else HUB_REPO
        return Place(repo, MAIN, "/".join(parts[n_repo:]))

    def ref(self, path: str) -> tuple[str, str] | None:
        """Repository and name of the ref that a file of a cache holds, or None for others."""
        parts = path.split("/")
        if len(parts) > 2 and parts[0] in self.cache_repos and parts[1] == "refs":
            return self.cache_repos[parts[0]], "/".join(parts[2:])
        return None


def detect_layout(name: str, paths: Collection[str]) -> Layout:
    """The layout of a hub.

    Parameters
    ----------
    name : str
        Name of its root directory.
    paths : Collection[str]
        All files below the root, relative to it.
    """
    split = [path.split("/", 2) for path in paths]
    cache_repos = {
        parts[0]: repo
        for parts in split
        if len(parts) > 2
        and (repo := _cache_repo(parts[0])) is not None
        and (parts[1] == "snapshots" or parts[1] in _CACHE_BOOKKEEPING)
    }
    is_single = not cache_repos and any(
        len(parts) == 1 and _is_model_file(parts[0]) for parts in split
    )
    model_directories = frozenset(
        parts[0] for parts in split if len(parts) == 2 and _is_model_file(parts[1])
    )
    return Layout(name if is_single else None, cache_repos, model_directories)


def is_above_cache(directories: Iterable[str], below: Iterable[str]) -> bool:
    """Whether a root is the directory above a Hugging Face cache and not the cache itself.

    Parameters
    ----------
    directories, below : Iterable[str]
        Names of the directories in the root, and in its `CACHE_DIRECTORY`.
    """
    return any(map(_cache_repo, below)) and not any(map(_cache_repo, directories))


def _cache_repo(directory: str) -> str | None:
    """Repository for which a Hugging Face cache makes a directory of this name, or None."""
    match = _CACHE_NAME.fullmatch(directory)
    if match is None:
        return None
    kind, name = match.groups()
    repo = name.replace("--", "/")
    return repo if kind == "models" else f"{kind}/{repo}"


def _place_in_cache(repo: str, parts: Sequence[str]) -> Place | None:
    if parts[0] == "snapshots" and len(parts) > 2:
        commit, inside = parts[1], parts[2:]
        return None if _is_skipped(inside[:1], inside) else Place(repo, commit, "/".join(inside))
    if parts[0] in _CACHE_BOOKKEEPING and len(parts) > 1:
        return None
    return Place(repo, None, "/".join(parts))


def _is_skipped(tops: Sequence[str], parts: Sequence[str]) -> bool:
    """Whether one of `tops`, the first of `parts`, is a directory of tools and not of models."""
    return any(part in _SKIPPED for part in tops[: len(parts) - 1])


def _is_model_file(name: str) -> bool:
    return name == _MODEL_NAME or name.endswith(_MODEL_SUFFIXES)
