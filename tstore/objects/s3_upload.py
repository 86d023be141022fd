"""Puts to S3: in parts where the object is large, and sure of their outcome."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from tstore.errors import (
    ObjectNotFoundError,
    PreconditionFailedError,
    TStoreError,
    UploadLostError,
)
from tstore.ids import Buffer
from tstore.objects.s3_calls import Patience, S3Calls, version_of
from tstore.objects.s3_config import S3Transfers

_MAX_PARTS = 10_000
_TOKEN = "tstore-put"
"""User metadata that tells our put from another one when its answer was lost."""


class S3Uploads:
    """Puts objects into one bucket.

    Parameters
    ----------
    calls : S3Calls
        The bucket.
    transfers : S3Transfers
        What counts as large.
    """

    def __init__(self, calls: S3Calls, transfers: S3Transfers) -> None:
        self._calls = calls
        self._transfers = transfers

    def put(self, key: str, parts: Iterable[Buffer], **condition: str) -> str:
        """Put the parts, one after the other, as one object; gives its version.

        A server may do as asked and its answer be lost; the next try then finds the condition
        broken by ourselves. The token of the object tells. Some servers check the condition of an
        upload in parts without a lock: what one of several writers must win has to be small.

        Parameters
        ----------
        key : str
            Key in the bucket.
        parts : iterable of buffers
            Held until the put is done, not copied.
        **condition : str
            ``IfNoneMatch="*"`` or ``IfMatch=version``.

        Raises
        ------
        PreconditionFailedError
            The condition does not hold.
        """
        views = [view for part in parts if (view := memoryview(part)).nbytes]
        token = uuid.uuid4().hex
        patience = Patience(self._calls.config.patience_s)
        while True:
            try:
                return self._send(key, views, token, condition)
            except (PreconditionFailedError, UploadLostError) as error:
                if (version := self._version_of_ours(key, token)) is not None:
                    return version
                if isinstance(error, PreconditionFailedError) or not patience.pause():
                    raise

    def _send(
        self, key: str, views: Sequence[memoryview], token: str, condition: dict[str, str]
    ) -> str:
        nbytes = sum(view.nbytes for view in views)
        if nbytes > self._transfers.single_put_nbytes:
            return self.put_in_parts(key, views, token, **condition)
        body = b"".join(views)
        metadata = {_TOKEN: token}
        return version_of(
            self._calls.call("put_object", key, Body=body, Metadata=metadata, **condition)
        )

    def put_in_parts(
        self, key: str, views: Sequence[memoryview], token: str, **condition: str
    ) -> str:
        """Upload in parts, at least one; nothing is left of it when it fails."""
        call = self._calls.call
        upload = call("create_multipart_upload", key, Metadata={_TOKEN: token})["UploadId"]

        def send(numbered: tuple[int, list[memoryview]]) -> dict[str, Any]:
            number, pieces = numbered
            body = b"".join(pieces)
            answer = call("upload_part", key, UploadId=upload, PartNumber=number, Body=body)
            return {"PartNumber": number, "ETag": answer["ETag"]}

        nbytes = sum(view.nbytes for view in views)
        size = part_nbytes(nbytes, self._transfers.part_nbytes)
        try:
            with ThreadPoolExecutor(self._transfers.threads) as pool:
                parts = {"Parts": list(pool.map(send, enumerate(cut(views, size), start=1)))}
            return version_of(
                call(
                    "complete_multipart_upload",
                    key,
                    UploadId=upload,
                    MultipartUpload=parts,
                    **condition,
                )
            )
        except BaseException:
            with suppress(TStoreError):  # what stays is removed with what dead writers left
                call("abort_multipart_upload", key, UploadId=upload)
            raise

    def _version_of_ours(self, key: str, token: str) -> str | None:
        """Version of the object if it is the one that this put wrote."""
        try:
            answer = self._calls.call("head_object", key)
        except ObjectNotFoundError:
            return None
        return version_of(answer) if answer["Metadata"].get(_TOKEN) == token else None


def part_nbytes(nbytes: int, smallest: int) -> int:
    """Bytes per part of an object of `nbytes`: S3 takes at most 10,000 parts."""
    return max(smallest, -(-nbytes // _MAX_PARTS))


def cut(views: Iterable[memoryview], nbytes: int) -> Iterator[list[memoryview]]:
    """Cut buffers that follow one another at every `nbytes`, without copying.

    Yields
    ------
    list of memoryview
        Together `nbytes` long, but for the last; one empty list if there are no bytes at all.
    """
    pieces: list[memoryview] = []
    room = nbytes
    for view in views:
        rest = view.cast("B")
        while rest.nbytes > room:
            yield [*pieces, rest[:room]]
            rest = rest[room:]
            pieces, room = [], nbytes
        pieces.append(rest)
        room -= rest.nbytes
    yield pieces
