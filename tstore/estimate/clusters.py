"""The sampling frame: tensors that lie in the same place of all models of a hub.

A tensor saves what its relatives allow, so a sample of single tensors would tell nothing. But
fine-tunes have their tensors in the same places: a sample of places, each with all of its tensors,
holds whole families.
"""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from math import prod

from tstore.errors import SourceRejectedError
from tstore.hub.formats import FORMATS, Extent, file_extents
from tstore.hub.location import HubLocation
from tstore.hub.names import name_tail
from tstore.hub.reader import SourceFile, open_source
from tstore.hub.snapshot import HubFile
from tstore.ids import OPAQUE
from tstore.objects.ahead import read_ahead
from tstore.plan.resized import MAX_GROWTH
from tstore.settings import KIB, TaskSettings

BLOCK_NBYTES = 256 * KIB
"""Bytes of a tensor that are looked at together. With fewer, more places fit into a sample; but
each block would choose a base of its own and need tables of its own, which tensors do not."""
OPAQUE_BLOCK_NBYTES = 64 * KIB
"""The same of opaque bytes, which have no bases."""

HEADER_NBYTES = 256 * KIB
"""What reading a header takes, about: several are read ahead from object storage."""


@dataclass(frozen=True, slots=True)
class Member:
    """A tensor or opaque extent of one source.

    Attributes
    ----------
    source : SourceFile
    start, nbytes : int
        Where it lies.
    rows : int
        Length of its first dimension.
    copies : int
        Files of the hub that are this source: links of a cache.
    """

    source: SourceFile
    start: int
    nbytes: int
    rows: int
    copies: int


@dataclass(frozen=True)
class Cluster:
    """Tensors in the same place, whose rows have the same shape; or opaque extents of one name.

    Attributes
    ----------
    dtype : str
    row : tuple of int
        Shape of a row.
    members : tuple of Member
    """

    dtype: str
    row: tuple[int, ...]
    members: tuple[Member, ...]

    @cached_property
    def nbytes(self) -> int:
        """Raw bytes of all members and their copies."""
        return sum(member.nbytes * member.copies for member in self.members)

    @cached_property
    def n_blocks(self) -> int:
        """Blocks that each member is cut into; of grown tensors, what all of them have."""
        limit = OPAQUE_BLOCK_NBYTES if self.dtype == OPAQUE else BLOCK_NBYTES
        return max(1, min(-(-self.least.nbytes // limit), self.least.nbytes // self._unit[0]))

    @property
    def block_nbytes(self) -> float:
        """Bytes to read of all members for one block, on average."""
        return len(self.members) * self.least.nbytes / self.n_blocks

    def block(self, member: Member, number: int) -> tuple[HubLocation, tuple[int, ...]]:
        """Where block `number` of a member lies, and its shape."""
        unit, tail = self._unit
        n_units = self.least.nbytes // unit
        first, last = (n_units * i // self.n_blocks for i in (number, number + 1))
        location = HubLocation(member.source, member.start + first * unit, (last - first) * unit)
        return location, (last - first, *tail)

    @cached_property
    def least(self) -> Member:
        """Its smallest member."""
        return min(self.members, key=lambda member: member.nbytes)

    @cached_property
    def _unit(self) -> tuple[int, tuple[int, ...]]:
        """What blocks are made of, in bytes, and its shape: rows, or elements of huge rows."""
        if self.dtype == OPAQUE:
            return 1, ()
        nbytes, rest = divmod(self.least.nbytes, self.least.rows)
        if rest:  # elements that are no whole bytes: such a tensor stays in one piece
            return self.least.nbytes, (self.least.rows, *self.row)
        element, rest = divmod(nbytes, prod(self.row))
        return (nbytes, self.row) if rest or nbytes <= BLOCK_NBYTES else (element, ())


@dataclass(frozen=True)
class Frame:
    """All that could be sampled.

    Attributes
    ----------
    clusters : tuple of Cluster
        Sorted by dtype, shape of a row and name, so that neighbours are alike.
    nbytes, files : int
        Of the hub.
    unreadable : tuple of str
        Sources that could not be read; they are not in the clusters.
    """

    clusters: tuple[Cluster, ...]
    nbytes: int
    files: int
    unreadable: tuple[str, ...]


_Place = tuple[str, tuple[int, ...], str, int]
"""dtype, shape of a row, name, part."""


def make_frame(files: Iterable[HubFile], tasks: TaskSettings) -> Frame:
    """Read the headers of all files and sort what they hold by place.

    Parameters
    ----------
    files : iterable of HubFile
    tasks : TaskSettings
        How an ingest cuts large tensors and opaque bytes.
    """
    files = list(files)
    counts = Counter(file.source for file in files)
    paths: dict[SourceFile, str] = {}
    for file in files:
        if file.source not in paths or any(form.matches(file.path) for form in FORMATS):
            paths[file.source] = file.path
    places: dict[_Place, list[Member]] = {}
    unreadable = []
    reads = (
        (source.source, HEADER_NBYTES, partial(_extents, source, path, tasks))
        for source, path in paths.items()
    )
    for (source, path), take in zip(paths.items(), read_ahead(reads), strict=True):
        try:
            extents = take()
        except SourceRejectedError:
            unreadable.append(source.source)
            continue
        for extent in extents:
            if extent.nbytes:
                rows = extent.shape[0] if extent.shape and extent.dtype != OPAQUE else 1
                member = Member(source, extent.start, extent.nbytes, rows, counts[source])
                places.setdefault(_place(extent, path), []).append(member)
    clusters = [cluster for place in sorted(places) for cluster in _kin(place, places[place])]
    nbytes = sum(cluster.nbytes for cluster in clusters)
    return Frame(tuple(clusters), nbytes, len(files), tuple(unreadable))


def _extents(source: SourceFile, path: str, tasks: TaskSettings) -> list[Extent]:
    if not any(form.matches(path) for form in FORMATS):
        step = tasks.opaque_extent_nbytes
        bounds = [(at, min(at + step, source.size)) for at in range(0, source.size, step)]
        return [Extent(i, None, OPAQUE, (b - a,), a, b) for i, (a, b) in enumerate(bounds)]
    with open_source(source) as reader:
        extents, _ = file_extents(
            reader,
            path,
            opaque_nbytes=tasks.opaque_extent_nbytes,
            tensor_nbytes=tasks.tensor_extent_nbytes,
        )
        reader.check_unchanged()
    return extents


def _place(extent: Extent, path: str) -> _Place:
    """Opaque extents of one size and offset, in files of one name, may be duplicates."""
    if extent.dtype == OPAQUE:
        return OPAQUE, (extent.nbytes,), posixpath.basename(path), extent.start
    name = name_tail(extent.name or "")
    return extent.dtype, extent.shape[1:], name, -1 if extent.part is None else extent.part


def _kin(place: _Place, members: list[Member]) -> Iterator[Cluster]:
    """Members whose numbers of rows may serve one another, the fewest rows first."""
    dtype, row, _, _ = place
    row = () if dtype == OPAQUE else row
    ordered = sorted(members, key=lambda member: member.rows)
    while ordered:
        near = [m for m in ordered if m.rows <= MAX_GROWTH * ordered[0].rows]
        chosen = set(near)
        yield Cluster(dtype, row, tuple(member for member in members if member in chosen))
        ordered = ordered[len(near) :]
