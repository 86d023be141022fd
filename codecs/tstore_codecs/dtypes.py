"""The element types of safetensors, and OPAQUE for plain bytes. No numpy here."""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from tstore_codecs.errors import UnsupportedDtypeError


@dataclass(frozen=True, slots=True)
class Dtype:
    """One element type.

    Attributes
    ----------
    wire_id
        Number of the type inside a blob (u8). Never reused.
    name
        Name in a safetensors header.
    bits
        Bits per element; below 8 elements are packed.
    width
        Bytes per unit of the byte planes. 1 for packed types; 4 for C64, which is two floats.
    mantissa_bits
        If each unit of ``width`` bytes is a float with its sign in the top bit, the bits below
        its exponent; else 0.
    """

    wire_id: int
    name: str
    bits: int
    width: int
    mantissa_bits: int

    @property
    def signed_float(self) -> bool:
        """Whether each unit is a float with its sign in the top bit."""
        return self.mantissa_bits > 0


_TABLE: Final = (
    Dtype(0, "OPAQUE", 8, 1, 0),
    Dtype(1, "BOOL", 8, 1, 0),
    Dtype(2, "F4", 4, 1, 0),
    Dtype(3, "F6_E2M3", 6, 1, 0),
    Dtype(4, "F6_E3M2", 6, 1, 0),
    Dtype(5, "U8", 8, 1, 0),
    Dtype(6, "I8", 8, 1, 0),
    Dtype(7, "F8_E5M2", 8, 1, 2),
    Dtype(8, "F8_E4M3", 8, 1, 3),
    Dtype(9, "F8_E8M0", 8, 1, 0),
    Dtype(10, "F8_E4M3FNUZ", 8, 1, 3),
    Dtype(11, "F8_E5M2FNUZ", 8, 1, 2),
    Dtype(12, "I16", 16, 2, 0),
    Dtype(13, "U16", 16, 2, 0),
    Dtype(14, "F16", 16, 2, 10),
    Dtype(15, "BF16", 16, 2, 7),
    Dtype(16, "I32", 32, 4, 0),
    Dtype(17, "U32", 32, 4, 0),
    Dtype(18, "F32", 32, 4, 23),
    Dtype(19, "C64", 64, 4, 23),
    Dtype(20, "F64", 64, 8, 52),
    Dtype(21, "I64", 64, 8, 0),
    Dtype(22, "U64", 64, 8, 0),
)

DTYPES: Final = MappingProxyType({dtype.name: dtype for dtype in _TABLE})
"""Every dtype by its safetensors name."""

_BY_WIRE_ID: Final = MappingProxyType({dtype.wire_id: dtype for dtype in _TABLE})


def dtype_by_name(name: str) -> Dtype:
    """Return the dtype called `name`, or raise `UnsupportedDtypeError`."""
    found = DTYPES.get(name)
    if found is None:
        known = ", ".join(DTYPES)
        raise UnsupportedDtypeError(f"expected one of {known}; found dtype {name!r}", dtype=name)
    return found


def dtype_by_wire_id(wire_id: int) -> Dtype:
    """Return the dtype numbered `wire_id`, or raise `UnsupportedDtypeError`."""
    found = _BY_WIRE_ID.get(wire_id)
    if found is None:
        raise UnsupportedDtypeError(
            f"expected a dtype id below {len(_TABLE)}; found {wire_id}: "
            "a newer tstore_codecs may know it",
            wire_id=wire_id,
        )
    return found
