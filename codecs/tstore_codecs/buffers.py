"""Any buffer as a flat array of bytes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tstore_codecs.dtypes import Dtype
from tstore_codecs.errors import UnsuitableBufferError

if TYPE_CHECKING:
    from typing_extensions import Buffer

ByteArray: TypeAlias = npt.NDArray[np.uint8]
AnyBuffer: TypeAlias = "Buffer | npt.NDArray[Any]"  # NumPy declares itself one from Python 3.12


def as_bytes(buffer: AnyBuffer) -> ByteArray:
    """Return the bytes of `buffer` in C order as a read-only uint8 array (n,).

    Copies only a buffer that is not contiguous.

    Raises
    ------
    UnsuitableBufferError
        If it holds Python objects.
    """
    if type(buffer) is np.ndarray and _is_flat(buffer):
        return _read_only(buffer)
    view = _view(buffer)
    if view.nbytes == 0:
        flat = np.empty(0, np.uint8)
    elif view.c_contiguous:
        flat = np.frombuffer(view, np.uint8)
    else:
        flat = np.frombuffer(view.tobytes(), np.uint8)
    return _read_only(flat)


def as_output(buffer: AnyBuffer, nbytes: int) -> ByteArray:
    """Return `buffer` as a writable uint8 array (nbytes,) over the same memory.

    Raises
    ------
    UnsuitableBufferError
        If it is read-only, not contiguous, or not exactly `nbytes` long.
    """
    view = _view(buffer)
    if view.readonly or not view.c_contiguous or view.nbytes != nbytes:
        raise UnsuitableBufferError(
            f"expected out= to be a writable contiguous buffer of {nbytes} bytes; found "
            f"{view.nbytes} bytes, readonly={view.readonly}, contiguous={view.c_contiguous}",
            expected=nbytes,
            found=view.nbytes,
        )
    return np.frombuffer(view, np.uint8) if nbytes else np.empty(0, np.uint8)


def words_of(data: ByteArray, dtype: Dtype) -> npt.NDArray[Any]:
    """Return the whole elements of `data` as aligned words of `dtype`."""
    body = data[: data.size - data.size % dtype.width]
    words = np.require(body.view(f"<u{dtype.width}"), requirements="A")
    words.flags.writeable = False  # a copy would be writable: see `as_bytes`
    return words


@contextlib.contextmanager
def aligned_words(out: ByteArray, dtype: Dtype) -> Iterator[npt.NDArray[Any]]:
    """Yield aligned words of `dtype` to fill; afterwards `out`, whole elements, has their bytes."""
    words = out.view(f"<u{dtype.width}")
    if words.flags.aligned:
        yield words
    else:
        scratch = np.empty_like(words)
        yield scratch
        words[:] = scratch


def _is_flat(array: npt.NDArray[Any]) -> bool:
    return array.dtype == np.uint8 and array.ndim == 1 and array.flags.c_contiguous


def _read_only(flat: ByteArray) -> ByteArray:
    """Return `flat`, read-only: numba compiles a kernel once more for each kind of array."""
    if flat.flags.writeable:
        flat = flat[:]
        flat.flags.writeable = False
    return flat


def _view(buffer: AnyBuffer) -> memoryview:
    """Return a view of `buffer`; of an array that is contiguous, of its bytes."""
    if not isinstance(buffer, np.ndarray):
        return memoryview(buffer)
    if buffer.dtype.hasobject:
        raise UnsuitableBufferError(f"expected plain elements; found dtype {buffer.dtype}")
    if buffer.flags.c_contiguous:
        # By their bytes: dates and bfloat16 have no format as a buffer.
        return buffer.reshape(-1).view(np.uint8).data
    return buffer.view(f"V{buffer.itemsize}").data
