"""How to reach an S3 server."""

from __future__ import annotations

import functools
import os
import threading
from dataclasses import dataclass
from typing import Any, TypeAlias

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError

from tstore.errors import ObjectStoreConfigError
from tstore.settings import MIB

_BOTO_ATTEMPTS = 4
"""boto3 gets over single faults; outages are waited out in `tstore.objects.s3_calls`, since the
retries of boto3 draw on a quota per client, which many threads use up in seconds."""

Environment: TypeAlias = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class S3Config:
    """Where the server is and how patient to be with it. Credentials stay with boto3.

    Attributes
    ----------
    endpoint : str or None
        URL of a server that is not AWS; None for AWS.
    region : str or None
        Region that requests are signed for.
    virtual_hosts : bool
        Bucket in the host name; at a custom endpoint it is in the path by default.
    patience_s : float
        Seconds without progress until a request is given up.
    connect_timeout_s, read_timeout_s : float
        Seconds until a silent server counts as a fault.
    pool_size : int
        Connections that a client keeps open.
    """

    endpoint: str | None = None
    region: str | None = None
    virtual_hosts: bool = False
    patience_s: float = 60.0
    connect_timeout_s: float = 5.0
    read_timeout_s: float = 30.0
    pool_size: int = 32

    @classmethod
    def from_environment(cls) -> S3Config:
        """What the AWS_* variables and profiles say, as boto3 reads them.

        Raises
        ------
        ObjectStoreConfigError
            boto3 cannot make sense of them.
        """
        with _lock(os.getpid()):
            return _configured(os.getpid(), _environment())

    @property
    def place(self) -> str:
        """The endpoint, for messages."""
        return self.endpoint or "AWS"

    def client(self) -> Any:
        """The boto3 client of this process; threads may share it."""
        with _lock(os.getpid()):  # threads may not share the making of it
            return _client(self, os.getpid(), _environment())


@dataclass(frozen=True)
class S3Transfers:
    """How large objects and long listings are cut.

    Attributes
    ----------
    single_put_nbytes : int
        Larger objects are uploaded in parts: a lost connection then costs one of them.
    part_nbytes : int
        Smallest part of such an upload.
    piece_nbytes : int
        Larger reads become several ranged ones: one connection seldom fills the network.
    threads : int
        Parts or pieces under way at once.
    page_keys : int
        Objects per answer to a listing; servers give at most 1,000.
    """

    single_put_nbytes: int = 64 * MIB
    part_nbytes: int = 16 * MIB
    piece_nbytes: int = 32 * MIB
    threads: int = 4
    page_keys: int = 1000


def _environment() -> Environment:
    """The variables that boto3 reads. Caches are keyed by them and by the process, since neither
    sockets nor locks survive a fork."""
    return tuple(sorted(item for item in os.environ.items() if item[0].startswith("AWS_")))


@functools.cache
def _lock(pid: int) -> threading.Lock:
    return threading.Lock()


@functools.cache
def _session(pid: int, environment: Environment) -> boto3.Session:
    try:
        return boto3.Session()
    except BotoCoreError as error:  # e.g. a profile that no file has
        raise _unusable(error) from error


@functools.cache
def _configured(pid: int, environment: Environment) -> S3Config:
    session = _session(pid, environment)
    try:
        meta = session.client("s3").meta
        aws = session.client("s3", config=Config(ignore_configured_endpoint_urls=True)).meta
    except (BotoCoreError, ValueError) as error:  # boto3 has no error of its own for a bad URL
        raise _unusable(error) from error
    return S3Config(
        endpoint=None if meta.endpoint_url == aws.endpoint_url else meta.endpoint_url,
        region=meta.region_name,
        virtual_hosts=(meta.config.s3 or {}).get("addressing_style") == "virtual",
    )


@functools.cache
def _client(config: S3Config, pid: int, environment: Environment) -> Any:
    options: dict[str, Any] = {}
    if config.virtual_hosts:
        options["s3"] = {"addressing_style": "virtual"}
    if config.endpoint:  # other servers seldom know the newer checksums of AWS
        options["request_checksum_calculation"] = "when_required"
        options["response_checksum_validation"] = "when_required"
    return _session(pid, environment).client(
        "s3",
        endpoint_url=config.endpoint,
        region_name=config.region,
        config=Config(
            retries={"mode": "standard", "total_max_attempts": _BOTO_ATTEMPTS},
            connect_timeout=config.connect_timeout_s,
            read_timeout=config.read_timeout_s,
            max_pool_connections=config.pool_size,
            tcp_keepalive=True,
            **options,
        ),
    )


def _unusable(error: Exception) -> ObjectStoreConfigError:
    return ObjectStoreConfigError(
        f"expected a usable AWS configuration, found: {error}; "
        "check AWS_PROFILE, AWS_ENDPOINT_URL and the files in ~/.aws"
    )
