"""Lossless codecs for tensors: any buffer to a self-describing blob and back."""

from tstore_codecs.blob import decode, decode_range, encode, inspect
from tstore_codecs.errors import (
    CodecError,
    CorruptBlobError,
    DuplicateCodecError,
    MissingBaseError,
    OutOfRangeError,
    TruncatedBlobError,
    UnexpectedBaseError,
    UnknownCodecError,
    UnsuitableBufferError,
    UnsupportedDtypeError,
    UnsupportedPathError,
    UnsupportedVersionError,
    WrongBaseError,
    WrongShapeError,
)
from tstore_codecs.frame import FORMAT_VERSION, BlobInfo, max_encoded_nbytes
from tstore_codecs.registry import available

__all__ = [
    "FORMAT_VERSION",
    "BlobInfo",
    "CodecError",
    "CorruptBlobError",
    "DuplicateCodecError",
    "MissingBaseError",
    "OutOfRangeError",
    "TruncatedBlobError",
    "UnexpectedBaseError",
    "UnknownCodecError",
    "UnsuitableBufferError",
    "UnsupportedDtypeError",
    "UnsupportedPathError",
    "UnsupportedVersionError",
    "WrongBaseError",
    "WrongShapeError",
    "available",
    "decode",
    "decode_range",
    "encode",
    "inspect",
    "max_encoded_nbytes",
]
