"""Object store in a bucket of an S3 server."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from operator import attrgetter

from pyarrow import fs

from tstore.errors import (
    InvalidKeyError,
    LocationError,
    ObjectExistsError,
    ObjectNotFoundError,
    PreconditionFailedError,
    UnsafePathError,
    UploadLostError,
)
from tstore.ids import Buffer, check_relative_path
from tstore.objects.arrow import arrow_filesystem
from tstore.objects.base import ObjectInfo
from tstore.objects.s3_calls import S3Calls, version_of
from tstore.objects.s3_config import S3Config, S3Transfers
from tstore.objects.s3_probe import check_conditional_puts
from tstore.objects.s3_read import S3Reads
from tstore.objects.s3_upload import S3Uploads

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


class S3Objects:
    """Objects below a prefix of a bucket; see `tstore.objects.base.ObjectStore`.

    Versions are ETags.

    Parameters
    ----------
    bucket : str
        Name of the bucket, which exists.
    prefix : str
        Its objects whose keys start with this and a slash; all of them if empty.
    config : S3Config, optional
        How to reach it; what the environment says if not given.
    transfers : S3Transfers
        How large objects and long listings are cut.
    """

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        config: S3Config | None = None,
        transfers: S3Transfers | None = None,
    ) -> None:
        transfers = transfers or S3Transfers()
        self._page_keys = transfers.page_keys
        self._calls = S3Calls(bucket, prefix, config or S3Config.from_environment())
        self._reads = S3Reads(self._calls, transfers)
        self._uploads = S3Uploads(self._calls, transfers)

    @classmethod
    def from_uri(cls, uri: str) -> S3Objects:
        """The store at ``s3://bucket/prefix``.

        Raises
        ------
        LocationError
            The text is no such location.
        """
        bucket, _, prefix = uri.removeprefix("s3://").partition("/")
        prefix = prefix.removesuffix("/")
        try:
            if not _BUCKET.fullmatch(bucket):
                raise UnsafePathError(f"expected the name of a bucket, found {bucket!r}")
            if prefix:
                check_relative_path(prefix)
        except UnsafePathError as error:
            raise LocationError(
                f"expected a location like s3://bucket/prefix, found {uri}: {error}", uri=uri
            ) from error
        return cls(bucket, prefix)

    @property
    def uri(self) -> str:
        return f"s3://{self._calls.bucket}/{self._calls.prefix}".removesuffix("/")

    def get(self, key: str) -> bytes:
        return self._reads.whole(key)[0]

    def get_versioned(self, key: str) -> tuple[bytes, str]:
        return self._reads.whole(key)

    def get_range(self, key: str, start: int, stop: int) -> bytes:
        return self._reads.range(key, start, stop)

    def get_range_of(self, key: str, version: str, start: int, stop: int) -> bytes:
        """Bytes ``[start, stop)`` of exactly this version, else `PreconditionFailedError`."""
        return self._reads.range_of(key, version, start, stop)

    def head(self, key: str) -> ObjectInfo:
        return self._reads.info(key)

    def put(self, key: str, parts: Iterable[Buffer]) -> None:
        self._uploads.put(key, parts)

    def put_new(self, key: str, parts: Iterable[Buffer]) -> None:
        try:
            self._uploads.put(key, parts, IfNoneMatch="*")
        except PreconditionFailedError as error:
            raise ObjectExistsError(f"expected no object at {key}, found one", key=key) from error

    def put_if_match(self, key: str, parts: Iterable[Buffer], version: str) -> str:
        try:
            return self._uploads.put(key, parts, IfMatch=version)
        except PreconditionFailedError as error:
            found = self.head(key).version  # not every server tells a missing object from another
            raise PreconditionFailedError(
                f"expected version {version} of {key}, found {found}; read it again", key=key
            ) from error

    def delete(self, key: str) -> None:
        with suppress(ObjectNotFoundError):  # AWS does not say so, other servers do
            self._calls.call("delete_object", key)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        # Servers that keep a tree of folders list "a/b" before "a-b".
        yield from sorted(self._listed(prefix), key=attrgetter("key"))

    def _listed(self, prefix: str) -> Iterator[ObjectInfo]:
        root = len(self._calls.prefix)
        for page in self._calls.pages("list_objects_v2", prefix, MaxKeys=self._page_keys):
            for item in page.get("Contents", ()):
                key, nbytes = item["Key"][root:], int(item["Size"])
                # Consoles show a marker "a/" as an empty folder; some servers read "//" as "/".
                if key.startswith(prefix) and (nbytes or not key.endswith("/")):
                    yield ObjectInfo(key, nbytes, version_of(item))

    def remove_abandoned(self, older_than_s: float) -> None:
        before = datetime.now(UTC) - timedelta(seconds=older_than_s)
        root = len(self._calls.prefix)
        for page in self._calls.pages("list_multipart_uploads", ""):
            for upload in page.get("Uploads", ()):
                if upload["Initiated"] < before:
                    # Its writer lives and just finished, or it is none of ours.
                    with suppress(UploadLostError, InvalidKeyError):
                        key = upload["Key"][root:]
                        self._calls.call("abort_multipart_upload", key, UploadId=upload["UploadId"])

    def probe(self) -> None:
        check_conditional_puts(self._calls, self._uploads)

    def filesystem(self) -> fs.FileSystem:
        return arrow_filesystem(self)
