"""How the numbers of a sketch are arranged, and which of them belong to which bit planes."""

from __future__ import annotations

from dataclasses import dataclass

from tstore.settings import SketchSettings
from tstore.sketch.kernels import LANES
from tstore_codecs.dtypes import dtype_by_name

NIBBLE_BITS = 4
_PLANES_PER_GROUP = {1: (1, 1), 2: (1, 1, 1, 1), 4: (3, 2, 1, 1, 1), 8: (8, 4, 1, 1, 2)}
"""Nibble planes of each group, lowest first, by bytes per element. The low mantissa bits of wide
floats differ alike; from the high mantissa on, each plane tells something of its own."""


@dataclass(frozen=True)
class SketchLayout:
    """The sketch of a tensor as an array (planes, depth, buckets).

    Plane ``i`` holds bits ``4 i .. 4 i + 3`` of every element. A *group* is consecutive planes
    that are looked at together: from the low mantissa up to the sign with the high exponent.

    Attributes
    ----------
    depth : int
        Rows d of TensorSketch.
    width : int
        Buckets per row w, all planes together.
    element_nbytes : int
        1, 2, 4 or 8.
    """

    depth: int
    width: int
    element_nbytes: int

    @classmethod
    def of(cls, dtype: str, settings: SketchSettings) -> SketchLayout:
        """Layout of the sketches of a safetensors dtype."""
        return cls(settings.depth, settings.width, dtype_by_name(dtype).width)

    @property
    def n_planes(self) -> int:
        """Nibble planes of an element."""
        return 2 * self.element_nbytes

    @property
    def columns(self) -> int:
        """Buckets per row and nibble of a 64-bit word."""
        return self.width // LANES

    @property
    def n_groups(self) -> int:
        """Groups of planes."""
        return len(_PLANES_PER_GROUP[self.element_nbytes])

    @property
    def group_planes(self) -> tuple[int, ...]:
        """Planes in each group, lowest first."""
        return _PLANES_PER_GROUP[self.element_nbytes]

    @property
    def shares(self) -> tuple[float, ...]:
        """Share of each group in the bits of an element."""
        return tuple(planes / self.n_planes for planes in self.group_planes)
