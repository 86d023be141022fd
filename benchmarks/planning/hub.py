"""A hub as planners see it: unique tensors in order of arrival, their groups, their bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tstore.hub.location import HubLocation
from tstore.settings import SketchSettings
from tstore.sketch.groups import SketchGroup

ByteArray = NDArray[np.uint8]


@dataclass(frozen=True)
class UniqueTensor:
    """A tensor, however many models have it.

    Attributes
    ----------
    id, dtype : str
    shape : tuple of int
    location : HubLocation
        One place where its bytes lie.
    standalone : float
        Predicted stored/raw without a base.
    sketch : int16 (d * w,) or None
        None for tensors below ``SketchSettings.min_nbytes``: they are always stored alone.
    """

    id: str
    dtype: str
    shape: tuple[int, ...]
    location: HubLocation
    standalone: float
    sketch: NDArray[np.int16] | None

    @property
    def nbytes(self) -> int:
        """Raw bytes."""
        return self.location.nbytes

    def read(self) -> ByteArray:
        """The raw bytes, mapped: what is not looked at takes no memory."""
        at = self.location
        return np.memmap(at.source.source, np.uint8, "r", at.start, (at.nbytes,))


@dataclass(frozen=True)
class Hub:
    """Models in order of arrival.

    Attributes
    ----------
    contents : mapping of str to mapping of str to str
        Model to name to tensor id, all in order of arrival. A model is a directory with tensors:
        ``org/name``, or one below such as ``org/name/checkpoint-100``.
    tensors : mapping of str to UniqueTensor
        By id; may hold more than `contents` names.
    cards : mapping of str to str
        Model to the ``base_model`` of its README, for those that give one.
    parents : mapping of str to tuple of str
        Model to what it was really made from, where that is known.
    settings : SketchSettings
    """

    contents: Mapping[str, Mapping[str, str]]
    tensors: Mapping[str, UniqueTensor]
    cards: Mapping[str, str]
    parents: Mapping[str, tuple[str, ...]]
    settings: SketchSettings

    @cached_property
    def arrivals(self) -> dict[str, tuple[str, str]]:
        """Tensor id to the model and name with which it came first, in that order."""
        found: dict[str, tuple[str, str]] = {}
        for model, names in self.contents.items():
            for name, tensor_id in names.items():
                found.setdefault(tensor_id, (model, name))
        return found

    @cached_property
    def groups(self) -> tuple[SketchGroup, ...]:
        """Tensors that may be bases of one another, in order of arrival."""
        return self.groups_of(self.arrivals)

    def groups_of(self, ids: Iterable[str]) -> tuple[SketchGroup, ...]:
        """Groups of the sketched ones of these tensors, in the order given."""
        members: dict[tuple[str, tuple[int, ...]], list[UniqueTensor]] = {}
        for tensor_id in ids:
            tensor = self.tensors[tensor_id]
            if tensor.sketch is not None:
                members.setdefault((tensor.dtype, tensor.shape), []).append(tensor)
        return tuple(_group(tensors) for tensors in members.values())

    def nbytes(self, model: str) -> int:
        """Raw bytes of all tensors of a model, duplicates counted each time."""
        return sum(self.tensors[tensor_id].nbytes for tensor_id in self.contents[model].values())

    def root(self, model: str) -> str:
        """The model at the top of the true lineage; the first parent is followed."""
        seen = {model}
        while parents := [p for p in self.parents.get(model, ()) if p in self.contents]:
            model = parents[0]
            if model in seen:
                raise ValueError(f"expected a lineage without circles, found one at {model}")
            seen.add(model)
        return model

    def only(self, models: Iterable[str]) -> Hub:
        """The same hub with these models, arriving in this order."""
        return self.with_contents({model: self.contents[model] for model in models})

    def with_contents(self, contents: Mapping[str, Mapping[str, str]]) -> Hub:
        """The same tensors, arriving otherwise."""
        return Hub(contents, self.tensors, self.cards, self.parents, self.settings)


def _group(tensors: list[UniqueTensor]) -> SketchGroup:
    first = tensors[0]
    return SketchGroup(
        dtype=first.dtype,
        shape=first.shape,
        nbytes=first.nbytes,
        ids=tuple(tensor.id for tensor in tensors),
        sketches=np.stack([tensor.sketch for tensor in tensors if tensor.sketch is not None]),
        standalone=np.array([tensor.standalone for tensor in tensors]),
    )


def title(group: SketchGroup) -> str:
    """Dtype and shape of a group, for tables."""
    return f"{group.dtype}[{','.join(map(str, group.shape))}]"
