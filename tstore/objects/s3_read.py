"""Reads from S3 that get over broken connections and never mix two versions of an object."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from botocore.exceptions import IncompleteReadError

from tstore.errors import (
    AccessDeniedError,
    ObjectNotFoundError,
    PreconditionFailedError,
    RangeError,
    RequestRefusedError,
)
from tstore.objects.base import ObjectInfo
from tstore.objects.s3_calls import FAULTS, Patience, S3Calls, version_of
from tstore.objects.s3_config import S3Transfers
from tstore.settings import MIB

_CHUNK_NBYTES = MIB
"""Taken at once from a connection."""


class S3Reads:
    """Reads objects of one bucket.

    Parameters
    ----------
    calls : S3Calls
        The bucket.
    transfers : S3Transfers
        What is read over several connections.
    """

    def __init__(self, calls: S3Calls, transfers: S3Transfers) -> None:
        self._calls = calls
        self._transfers = transfers

    def info(self, key: str) -> ObjectInfo:
        """Size and version of an object."""
        try:
            answer = self._calls.call("head_object", key)
        except (ObjectNotFoundError, AccessDeniedError):
            # An answer to HEAD has no body: one to a listing says whether it is the bucket.
            self._calls.call("list_objects_v2", MaxKeys=1)
            raise
        return ObjectInfo(key, int(answer["ContentLength"]), version_of(answer))

    def whole(self, key: str) -> tuple[bytes, str]:
        """An object and its version."""
        while True:
            answer = self._calls.call("get_object", key)
            nbytes, version, body = int(answer["ContentLength"]), version_of(answer), answer["Body"]
            try:
                if nbytes > self._transfers.piece_nbytes:
                    body.close()
                    return self.range_of(key, version, 0, nbytes), version
                return self._read(key, version, 0, nbytes, body), version
            except PreconditionFailedError:  # replaced while it was read
                continue

    def range(self, key: str, start: int, stop: int) -> bytes:
        """Bytes ``[start, stop)`` of the version that is there."""
        while True:
            try:
                return self._range(key, start, stop, {})
            except PreconditionFailedError:  # replaced while it was read
                continue

    def range_of(self, key: str, version: str, start: int, stop: int) -> bytes:
        """Bytes ``[start, stop)`` of this version, or `PreconditionFailedError`."""
        return self._range(key, start, stop, {"IfMatch": version})

    def _range(self, key: str, start: int, stop: int, condition: dict[str, str]) -> bytes:
        if not 0 <= start < stop:  # no range that HTTP can say
            return self._no_bytes(key, start, stop, condition)
        first = f"bytes={start}-{min(stop, start + self._transfers.piece_nbytes) - 1}"
        try:
            answer = self._calls.call("get_object", key, Range=first, **condition)
        except RangeError as error:
            raise _outside(key, start, stop, self.info(key).nbytes) from error
        body, nbytes = answer["Body"], _full_size(answer, key)
        if stop > nbytes:
            body.close()
            raise _outside(key, start, stop, nbytes)
        return self._read(key, version_of(answer), start, stop, body)

    def _no_bytes(self, key: str, start: int, stop: int, condition: dict[str, str]) -> bytes:
        answer = self._calls.call("head_object", key, **condition)
        if not 0 <= start == stop <= int(answer["ContentLength"]):
            raise _outside(key, start, stop, int(answer["ContentLength"]))
        return b""

    def _read(self, key: str, version: str, start: int, stop: int, body: Any) -> bytes:
        """The bytes, of which `body` gives the first ones, into one buffer."""
        size = self._transfers.piece_nbytes
        starts = range(0, max(stop - start, 1), size)
        buffer = io.BytesIO()  # the one buffer of Python that becomes bytes without a copy
        buffer.seek(max(stop - start - 1, 0))
        buffer.write(b"\0"[: stop - start])

        def fill(offset: int) -> None:
            piece = view[offset : offset + size]
            self._fill(key, version, start + offset, piece, None if offset else body)

        with buffer.getbuffer() as view:
            if len(starts) > 1:
                with ThreadPoolExecutor(self._transfers.threads) as pool:
                    list(pool.map(fill, starts))
            else:
                fill(0)
        return buffer.getvalue()

    def _fill(self, key: str, version: str, start: int, view: memoryview, body: Any) -> None:
        """Fill the view with the bytes from `start` on; a broken body is resumed where it broke."""
        patience = Patience(self._calls.config.patience_s)
        done, stop = 0, start + len(view)
        try:
            while done < len(view):
                if body is None:
                    rest = f"bytes={start + done}-{stop - 1}"
                    body = self._calls.call("get_object", key, Range=rest, IfMatch=version)["Body"]
                try:
                    count = body.readinto(view[done : done + _CHUNK_NBYTES])
                    if not count:
                        raise IncompleteReadError(actual_bytes=done, expected_bytes=len(view))
                except FAULTS as fault:
                    body = body.close()
                    self._calls.wait_or_raise(patience, fault, key)
                else:
                    done += count
                    patience.progress()
        finally:
            if body is not None:
                body.close()


def _full_size(answer: dict[str, Any], key: str) -> int:
    """Size of the object that a ranged answer is a part of."""
    content_range = str(answer.get("ContentRange", ""))
    if not content_range:
        raise RequestRefusedError(
            f"expected a part of {key}, found an answer without Content-Range; use a server that "
            "supports ranged reads",
            key=key,
        )
    return int(content_range.rpartition("/")[2])


def _outside(key: str, start: int, stop: int, nbytes: int) -> RangeError:
    return RangeError(
        f"expected a range inside the {nbytes} bytes of {key}, found [{start}, {stop}); "
        "the object may be truncated",
        key=key,
    )
