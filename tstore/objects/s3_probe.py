"""Does this server keep two writers apart? Some that speak S3 silently overwrite."""

from __future__ import annotations

import uuid
from collections.abc import Callable

from tstore.errors import (
    ConditionalPutUnsupportedError,
    PreconditionFailedError,
    RequestRefusedError,
)
from tstore.objects.base import PROBE_PREFIX
from tstore.objects.s3_calls import S3Calls
from tstore.objects.s3_upload import S3Uploads

_STALE = "0" * 32


def check_conditional_puts(calls: S3Calls, uploads: S3Uploads) -> None:
    """Try every conditional put that tstore relies on, on an object of its own.

    Raises
    ------
    ConditionalPutUnsupportedError
        A put that should have been refused was not, or the other way round.
    """
    key = f"{PROBE_PREFIX}{uuid.uuid4().hex}"

    def at_once(**condition: str) -> str:
        return uploads.put(key, [uuid.uuid4().bytes], **condition)

    def in_parts(**condition: str) -> str:
        token = uuid.uuid4().hex
        return uploads.put_in_parts(key, [memoryview(token.encode())], token, **condition)

    def refused(put: Callable[..., str], **condition: str) -> bool:
        try:
            put(**condition)
        except PreconditionFailedError:
            return True
        return False

    wrong = []
    try:
        at_once(IfNoneMatch="*")
        for way, put in (("put", at_once), ("put in parts", in_parts)):
            if not refused(put, IfNoneMatch="*"):
                wrong.append(f"a second create-only {way} replaced the first")
            if not refused(put, IfMatch=_STALE):
                wrong.append(f"a conditional {way} replaced another version")
            if refused(put, IfMatch=at_once()):
                wrong.append(f"a conditional {way} refused the version that is there")
    except RequestRefusedError as error:
        wrong.append(str(error))
    finally:
        calls.call("delete_object", key)
    if wrong:
        raise ConditionalPutUnsupportedError(
            f"expected conditional puts at s3://{calls.bucket} ({calls.config.place}), found: "
            f"{'; '.join(wrong)}; use a server that knows If-None-Match and If-Match, as AWS does, "
            "since here two jobs could overwrite one another"
        )
