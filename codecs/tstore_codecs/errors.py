"""What can go wrong, one class per failed check."""


class CodecError(Exception):
    """Base of every error this package raises on purpose.

    Parameters
    ----------
    message
        What was expected, what was found, what to do.
    **context
        Facts about the failure; each becomes an attribute. They survive pickling, so an
        error raised in a worker process arrives whole.
    """

    def __init__(self, message: str, /, **context: object) -> None:
        super().__init__(message)
        self.__dict__.update(context)


class CorruptBlobError(CodecError):
    """The blob contradicts itself, its checksum, or the format."""


class TruncatedBlobError(CodecError):
    """The blob ends before its own header says it should."""


class UnsupportedVersionError(CodecError):
    """The blob was written in a format version this reader does not know."""


class UnknownCodecError(CodecError):
    """No codec has this name or wire id."""


class UnsupportedDtypeError(CodecError):
    """No dtype has this name or wire id."""


class MissingBaseError(CodecError):
    """The codec codes against a base and none was given."""


class UnexpectedBaseError(CodecError):
    """A base was given to a codec that uses none."""


class WrongBaseError(CodecError):
    """The base has another length or checksum than the one the blob was coded against."""


class UnsuitableBufferError(CodecError):
    """The output buffer has the wrong size, is read-only, strided, or overlaps blob or base."""


class DuplicateCodecError(CodecError):
    """Two codecs claim one name or wire id, or a codec claims one that is not its own."""


class UnsupportedPathError(CodecError):
    """The environment asks for an instruction set that is unknown or that this CPU lacks."""


class WrongShapeError(CodecError):
    """Shape and dtype make another number of bytes than the tensor has."""


class OutOfRangeError(CodecError):
    """The range of bytes does not lie within the tensor."""
