"""The codecs without a base as numcodecs codecs, so that zarr arrays may use them.

``numcodecs.get_codec({"id": "tstore_zipnn", "dtype": "BF16"})`` finds them by their entry points.
numcodecs itself is needed for this module alone.
"""

from __future__ import annotations

from typing import Any, ClassVar

from numcodecs.abc import Codec
from numcodecs.compat import ensure_contiguous_ndarray_like, ndarray_copy

from tstore_codecs.blob import decode, encode
from tstore_codecs.dtypes import dtype_by_name


class _TensorCodec(Codec):  # type: ignore[misc]
    """A buffer as a blob.

    Parameters
    ----------
    dtype
        Type of the elements by its safetensors name. zarr hands over bytes of any type.
    """

    codec: ClassVar[str]

    def __init__(self, dtype: str = "OPAQUE") -> None:
        self.dtype = dtype_by_name(dtype).name

    def encode(self, buf: Any) -> bytes:
        """Return `buf` as a blob."""
        data = ensure_contiguous_ndarray_like(buf)
        return encode(data, dtype=self.dtype, codec=self.codec)

    def decode(self, buf: Any, out: Any = None) -> Any:
        """Return the bytes of a blob, in `out` if it is given."""
        raw = decode(ensure_contiguous_ndarray_like(buf))
        return raw if out is None else ndarray_copy(raw, out)


class ZipNNCodec(_TensorCodec):
    """``zipnn`` for trained weights."""

    codec_id = "tstore_zipnn"
    codec = "zipnn"


class ZstdCodec(_TensorCodec):
    """``zstd`` with the checksums of a blob."""

    codec_id = "tstore_zstd"
    codec = "zstd"
