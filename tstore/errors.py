"""Every error that tstore raises on purpose: one class per failed check.

Messages say what was expected, what was found and what to do. Errors cross process borders
(Ray), so the message is the first positional argument and the context lives in attributes.
"""

from __future__ import annotations

from typing import Any


class TStoreError(Exception):
    """Base of all errors of tstore.

    Parameters
    ----------
    message : str
        Expected / found / what to do, in one line.
    **context : Any
        Facts for programs (key, path, sizes); kept as attributes.
    """

    def __init__(self, message: str, /, **context: Any) -> None:
        super().__init__(message)
        self.__dict__.update(context)


# --- object store -----------------------------------------------------------------------------


class ObjectNotFoundError(TStoreError):
    """The key names no object."""


class ObjectExistsError(TStoreError):
    """A create-only put found the key taken."""


class PreconditionFailedError(TStoreError):
    """A conditional put found another version than the one it expected."""


class InvalidKeyError(TStoreError):
    """The key would leave the root of the store."""


class RangeError(TStoreError):
    """A ranged read asked for bytes that the object does not have."""


class LocationError(TStoreError):
    """The text names no place that an object store can be at."""


class ObjectStoreConfigError(TStoreError):
    """The environment or the profiles do not say how to reach the object store."""


class BucketNotFoundError(TStoreError):
    """The server has no bucket of that name."""


class CredentialsMissingError(TStoreError):
    """No credentials for the object store were found."""


class CredentialsRefusedError(TStoreError):
    """The server does not know the credentials, or they expired."""


class AccessDeniedError(TStoreError):
    """The server knows the credentials but does not allow the request."""


class RequestRefusedError(TStoreError):
    """The server refused a request, and would again."""


class ObjectStoreUnavailableError(TStoreError):
    """The server did not answer, or answered with faults, for as long as we were patient."""


class UploadLostError(TStoreError):
    """The server no longer knows an upload in parts that was under way."""


class ConditionalPutUnsupportedError(TStoreError):
    """The server does not keep two writers apart, so two jobs could overwrite one another."""


class StoreNotWritableError(TStoreError):
    """The operating system refused to write to the store: full, read-only or not permitted."""


# --- store and catalog ------------------------------------------------------------------------


class StoreNotFoundError(TStoreError):
    """The location holds no store."""


class StoreFormatError(TStoreError):
    """The store was written in a format that this version cannot read."""


class LeaseHeldError(TStoreError):
    """Another job holds the writer lease."""


class LeaseLostError(TStoreError):
    """The writer lease is no longer ours, so nothing may be committed."""


class CatalogDamagedError(TStoreError):
    """A committed run misses a part, or rows contradict one another."""


class RepoNotFoundError(TStoreError):
    """The store holds no repository of that name."""


class RevisionNotFoundError(TStoreError):
    """The repository holds no such revision."""


class LineageTooLargeError(TStoreError):
    """More models than can be compared with one another."""


class PlanInvariantError(TStoreError):
    """A plan breaks a rule that every plan must keep."""


# --- hub --------------------------------------------------------------------------------------


class HubNotFoundError(TStoreError):
    """The hub location is missing, or is neither a directory nor a prefix of objects."""


class EmptyHubError(TStoreError):
    """The hub, or what the patterns select of it, holds no file."""


class HubLayoutError(TStoreError):
    """The hub's directories cannot be mapped to repositories without ambiguity."""


class SourceRejectedError(TStoreError):
    """Base of what makes one source file unusable; the run goes on without it."""


class SymlinkEscapesError(SourceRejectedError):
    """A symbolic link leaves the hub."""


class BrokenSymlinkError(SourceRejectedError):
    """A symbolic link points to nothing, or in a circle."""


class PathConflictError(SourceRejectedError):
    """A file lies where the path of another one needs a directory."""


class NotRegularFileError(SourceRejectedError):
    """A device, socket or pipe lies where a file was expected."""


class UndecodableNameError(SourceRejectedError):
    """A file name is not valid UTF-8."""


class SourceChangedError(SourceRejectedError):
    """The file changed while it was read."""


class SourceUnreadableError(SourceRejectedError):
    """The operating system refused to read the file."""


class WorkerLostError(SourceRejectedError):
    """Every worker that took the file was lost: it needs more memory than a node has, or worse."""


class IdentityCollisionError(SourceRejectedError):
    """Two tensors share an xxh3_128 id but not their SHA-256."""


# --- file formats -----------------------------------------------------------------------------


class LayoutError(TStoreError):
    """Base of what makes a file unparsable; such a file is kept as opaque bytes."""


class HeaderTruncatedError(LayoutError):
    """The file ends before its header does."""


class HeaderTooLargeError(LayoutError):
    """The header length exceeds the format's limit."""


class HeaderNotUtf8Error(LayoutError):
    """The header bytes are not UTF-8."""


class HeaderNotJsonError(LayoutError):
    """The header is not one JSON object."""


class DuplicateKeyError(LayoutError):
    """The header names a key twice."""


class InvalidEntryError(LayoutError):
    """A header entry misses a field or holds one of the wrong type."""


class UnknownDtypeError(LayoutError):
    """The header names a dtype that the format does not define."""


class SizeMismatchError(LayoutError):
    """Shape times dtype does not give the number of bytes between the offsets."""


class OffsetRangeError(LayoutError):
    """An offset lies outside the data section; the file may be truncated."""


class OverlapError(LayoutError):
    """Two tensors share bytes."""


class HoleError(LayoutError):
    """Bytes of the data section belong to no tensor."""


# --- encode, restore, verify ------------------------------------------------------------------


class VerificationError(TStoreError):
    """A blob decoded to other bytes than it was made from; nothing was published."""


class UnsafePathError(TStoreError):
    """A path is absolute, has '..' or leaves the destination through a link."""


class DestinationConflictError(TStoreError):
    """The destination holds another file under that name."""


class BlobMissingError(TStoreError):
    """A committed file needs a blob that no committed run holds."""


class BlobDamagedError(TStoreError):
    """A blob did not decode to the bytes that it was made from."""


class DataGivenUpError(TStoreError):
    """What a removed revision needs was removed for good."""


class FileMismatchError(TStoreError):
    """A rebuilt file has another SHA-256 than the ingested one."""


# --- cluster ----------------------------------------------------------------------------------


class ClusterNotFoundError(TStoreError):
    """Nothing answers at the address of the cluster."""


class VersionSkewError(TStoreError):
    """Driver and worker run different code."""


class StageFailedError(TStoreError):
    """A shard failed for good after its retries."""
