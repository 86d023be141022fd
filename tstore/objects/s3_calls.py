"""Requests to one bucket: transient faults are waited out, everything else gets a clear error."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from typing import Any

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,
    CredentialRetrievalError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    PartialCredentialsError,
    SSLError,
)
from urllib3.exceptions import HTTPError

from tstore.errors import (
    AccessDeniedError,
    BucketNotFoundError,
    CredentialsMissingError,
    CredentialsRefusedError,
    InvalidKeyError,
    ObjectNotFoundError,
    ObjectStoreUnavailableError,
    PreconditionFailedError,
    RangeError,
    RequestRefusedError,
    TStoreError,
    UnsafePathError,
    UploadLostError,
)
from tstore.ids import check_relative_path
from tstore.objects.s3_config import S3Config

FAULTS = (BotoCoreError, ClientError, HTTPError)
"""Everything that boto3 raises for a request or for the body of its answer."""

_BUSY = {
    "ConditionalRequestConflict",
    "RequestTimeout",
    "SlowDown",
    "Throttling",
    "ThrottlingException",
}
_BUSY_STATUS = {429, 500, 502, 503, 504}
_REFUSED = {
    "ExpiredToken",
    "InvalidAccessKeyId",
    "InvalidToken",
    "RequestTimeTooSkewed",
    "SignatureDoesNotMatch",
    "TokenRefreshRequired",
}
_MAX_KEY_NBYTES = 1024
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0


class Patience:
    """Pauses between tries, longer and longer, until too much time went by without progress.

    Parameters
    ----------
    seconds : float
        From the last progress on.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.progress()

    def progress(self) -> None:
        """Something went well: start anew."""
        self._deadline = time.monotonic() + self._seconds
        self._pause = _FIRST_PAUSE_S

    def pause(self) -> bool:
        """Pause for a while; False when patience is at its end."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            return False
        # Half of it at random, so that clients do not come back all at once.
        time.sleep(min(self._pause * random.uniform(0.5, 1), left))
        self._pause = min(2 * self._pause, _LONGEST_PAUSE_S)
        return True


class S3Calls:
    """Objects below a prefix of one bucket.

    Parameters
    ----------
    bucket, prefix : str
        Name of the bucket, and what its keys start with before a slash; empty for all of them.
    config : S3Config
        How to reach it.
    """

    def __init__(self, bucket: str, prefix: str, config: S3Config) -> None:
        self.bucket = bucket
        self.prefix = f"{prefix}/" if prefix else ""
        self.config = config

    def call(self, operation: str, key: str | None = None, **arguments: Any) -> dict[str, Any]:
        """One request, tried again while its faults are transient.

        Parameters
        ----------
        operation : str
            Method of the boto3 client.
        key : str, optional
            The object it is about, without the prefix.
        **arguments
            As boto3 takes them, without the bucket.

        Raises
        ------
        TStoreError
            What `error` tells.
        """
        if key is not None:
            arguments["Key"] = self._full(key)
        patience = Patience(self.config.patience_s)
        while True:
            try:
                request = getattr(self.config.client(), operation)
                answer: dict[str, Any] = request(Bucket=self.bucket, **arguments)
                return answer
            except FAULTS as fault:
                self.wait_or_raise(patience, fault, key)

    def pages(self, operation: str, prefix: str, **arguments: Any) -> Iterator[dict[str, Any]]:
        """All pages of a listing of the keys that start with `prefix`."""
        marker: dict[str, Any] = {}
        while True:
            page = self.call(operation, Prefix=self.prefix + prefix, **marker, **arguments)
            yield page
            if not page.get("IsTruncated"):
                return
            marker = {
                name: page[f"Next{name}"]
                for name in ("ContinuationToken", "KeyMarker", "UploadIdMarker")
                if page.get(f"Next{name}")
            }
            if not marker:
                raise RequestRefusedError(
                    f"expected the rest of a listing of s3://{self.bucket} at {self.config.place}, "
                    "found no marker to ask for it with; use another server"
                )

    def _full(self, key: str) -> str:
        """The key in the bucket."""
        try:
            check_relative_path(key)
        except UnsafePathError as error:
            raise InvalidKeyError(f"expected a relative key, found {key!r}", key=key) from error
        full = self.prefix + key
        if len(full.encode()) > _MAX_KEY_NBYTES:
            raise InvalidKeyError(
                f"expected a key of at most {_MAX_KEY_NBYTES} bytes, found {full!r}; "
                "use a shorter prefix",
                key=key,
            )
        return full

    def wait_or_raise(self, patience: Patience, fault: Exception, key: str | None) -> None:
        """Pause before the next try, or raise the error that this fault ends in."""
        if not (_is_transient(fault) and patience.pause()):
            raise self.error(fault, key) from fault

    def error(self, fault: Exception, key: str | None) -> TStoreError:
        """Our error for what boto3 raised."""
        at = f"s3://{self.bucket} at {self.config.place}"
        if isinstance(fault, NoCredentialsError | PartialCredentialsError):
            return CredentialsMissingError(
                f"expected credentials for {at}, found none; "
                "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
            )
        if _is_transient(fault):
            return ObjectStoreUnavailableError(
                f"expected {at} to answer, found for {self.config.patience_s:.0f} s: "
                f"{_reason(fault)}; run the same command again when it is up",
                key=key,
            )
        code = _error_code(fault)
        if code == "NoSuchBucket" or (code == "404" and key is None):
            return BucketNotFoundError(
                f"expected the bucket {at}, found none; create it, or check its name, "
                "AWS_ENDPOINT_URL and AWS_REGION"
            )
        if code in ("NoSuchKey", "404"):
            return ObjectNotFoundError(f"expected an object at {key}, found none", key=key)
        if code in ("PreconditionFailed", "412"):
            return PreconditionFailedError(
                f"expected an unchanged {key}, found another version; read it again", key=key
            )
        if code == "NoSuchUpload":
            return UploadLostError(
                f"expected the upload of {key} to {at} to go on, found it aborted; run the same "
                "command again, and let no rule of the bucket abort uploads within a day",
                key=key,
            )
        if code in ("InvalidRange", "416"):
            return RangeError(f"expected a range inside {key}, found one outside", key=key)
        if code in _REFUSED or isinstance(fault, CredentialRetrievalError):
            return CredentialsRefusedError(
                f"expected {at} to accept the credentials, found {_reason(fault)}; "
                "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN"
            )
        if code in ("AccessDenied", "AllAccessDisabled", "403"):
            return AccessDeniedError(
                f"expected permission for {key or 'the listing'} in {at}, found {_reason(fault)}; "
                "allow these credentials to list the bucket, to read, write and delete objects",
                key=key,
            )
        return RequestRefusedError(
            f"expected {at} to serve {key or 'the request'}, found {_reason(fault)}", key=key
        )


def _error_code(fault: Exception) -> str:
    """Code of an answer that is an error, the status where it has no body; else ''."""
    return str(fault.response["Error"]["Code"]) if isinstance(fault, ClientError) else ""


def _is_transient(fault: Exception) -> bool:
    """Whether the same request may succeed a little later."""
    if isinstance(fault, ClientError):
        status = fault.response["ResponseMetadata"].get("HTTPStatusCode", 0)
        return status in _BUSY_STATUS or _error_code(fault) in _BUSY
    if isinstance(fault, SSLError):  # a certificate does not get better
        return False
    return isinstance(fault, ConnectionError | HTTPClientError | IncompleteReadError | HTTPError)


def _reason(fault: Exception) -> str:
    """One line of what the server or the network said."""
    if isinstance(fault, ClientError):
        text = f"{_error_code(fault)}: {fault.response['Error'].get('Message', '')}"
    else:
        text = str(fault)
    return " ".join(text.split())


def version_of(answer: Mapping[str, Any]) -> str:
    """The ETag, without the quotes that not every server writes."""
    return str(answer["ETag"]).strip('"')
