"""What S3 servers answer, and what becomes of it: clear errors, patience, and a probe."""

import os
import pickle
from dataclasses import replace

import pytest

from support.faulty_proxy import Fault, faulty_proxy
from support.seaweed import BUCKET, seaweed
from tstore.errors import (
    AccessDeniedError,
    BucketNotFoundError,
    ConditionalPutUnsupportedError,
    CredentialsMissingError,
    CredentialsRefusedError,
    InvalidKeyError,
    ObjectStoreConfigError,
    ObjectStoreUnavailableError,
    RequestRefusedError,
)
from tstore.objects import open_objects
from tstore.objects.s3 import S3Objects
from tstore.objects.s3_calls import Patience, S3Calls
from tstore.objects.s3_config import S3Config, S3Transfers
from tstore.objects.s3_probe import check_conditional_puts
from tstore.objects.s3_upload import S3Uploads

EVERY_CALL = {
    "get": lambda objects: objects.get("k"),
    "get_range": lambda objects: objects.get_range("k", 0, 1),
    "head": lambda objects: objects.head("k"),
    "list": lambda objects: list(objects.list("")),
    "put": lambda objects: objects.put("k", [b"x"]),
    "put_new": lambda objects: objects.put_new("k", [b"x"]),
    "put_if_match": lambda objects: objects.put_if_match("k", [b"x"], "version"),
    "delete": lambda objects: objects.delete("k"),
}
every_call = pytest.mark.parametrize("call", EVERY_CALL.values(), ids=EVERY_CALL)
reads = pytest.mark.parametrize(
    "call", [EVERY_CALL[name] for name in ("get", "get_range", "head", "list")]
)


def impatient(objects):
    """The same store, seen by someone who gives up at once."""
    config = replace(objects._calls.config, patience_s=0.0)
    return S3Objects(objects._calls.bucket, objects._calls.prefix.rstrip("/"), config)


# --- refusals ---------------------------------------------------------------------------------


@every_call
def test_a_wrong_secret_is_refused(s3, monkeypatch, call):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(CredentialsRefusedError, match=f"s3://{BUCKET} at .*Signature.*check AWS_"):
        call(open_objects(s3.uri()))


def test_an_unknown_key_is_refused(s3, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    with pytest.raises(CredentialsRefusedError, match="InvalidAccessKeyId"):
        open_objects(s3.uri()).get("k")


@every_call
def test_missing_credentials_are_said_to_be_missing(s3, monkeypatch, call):
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(CredentialsMissingError, match="found none; set AWS_ACCESS_KEY_ID"):
        call(open_objects(s3.uri()))


def test_pyarrow_misses_credentials_too(s3, monkeypatch):
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(CredentialsMissingError):
        open_objects(s3.uri()).filesystem().open_input_file("k")


@reads
def test_a_missing_bucket_is_said_to_be_missing(s3, call):
    objects = open_objects("s3://no-such-bucket/x")
    with pytest.raises(BucketNotFoundError, match=r"bucket s3://no-such-bucket at .*; create it"):
        call(objects)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AWS_PROFILE", "nobody"),
        ("AWS_ENDPOINT_URL", "localhost:9"),
        ("AWS_ENDPOINT_URL", "http://"),
    ],
)
def test_an_unusable_configuration_is_refused(s3, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    with pytest.raises(ObjectStoreConfigError, match="check AWS_PROFILE, AWS_ENDPOINT_URL"):
        open_objects(s3.uri())


def test_a_key_that_is_too_long_is_refused(s3):
    with pytest.raises(InvalidKeyError, match="at most 1024 bytes"):
        open_objects(s3.uri()).put("k" * 1010, [b"x"])


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (403, "AccessDenied", AccessDeniedError),
        (403, "ExpiredToken", CredentialsRefusedError),
        (400, "InvalidToken", CredentialsRefusedError),
        (400, "EntityTooLarge", RequestRefusedError),
        (501, "NotImplemented", RequestRefusedError),
        (500, "InternalError", ObjectStoreUnavailableError),
        (503, "SlowDown", ObjectStoreUnavailableError),
        (429, "TooManyRequests", ObjectStoreUnavailableError),
        (400, "RequestTimeout", ObjectStoreUnavailableError),
        (409, "ConditionalRequestConflict", ObjectStoreUnavailableError),
    ],
)
def test_each_answer_has_its_error(s3, monkeypatch, status, code, expected):
    objects = impatient(open_objects(s3.uri()))
    client = objects._calls.config.client()
    answer = {
        "Error": {"Code": code, "Message": "the\nreason"},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }

    def refuse(**arguments):
        raise client.exceptions.ClientError(answer, "PutObject")

    monkeypatch.setattr(client, "put_object", refuse)
    with pytest.raises(expected, match=f"s3://{BUCKET} at .*{code}: the reason") as caught:
        objects.put("k", [b"x"])
    assert "\n" not in str(caught.value)
    sent = pickle.loads(pickle.dumps(caught.value))
    assert (type(sent), str(sent), vars(sent)) == (expected, str(caught.value), vars(caught.value))


def test_a_listing_that_cannot_be_continued_is_refused(s3, monkeypatch):
    objects = open_objects(s3.uri())
    monkeypatch.setattr(objects._calls, "call", lambda *_, **__: {"IsTruncated": True})
    with pytest.raises(RequestRefusedError, match="the rest of a listing"):
        list(objects.list(""))


# --- patience ---------------------------------------------------------------------------------


@every_call
def test_a_server_that_is_gone_is_unavailable(s3, monkeypatch, call):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    objects = impatient(open_objects(s3.uri()))
    with pytest.raises(ObjectStoreUnavailableError, match="run the same command again"):
        call(objects)


def test_patience_ends_but_not_while_there_is_progress(monkeypatch):
    now, pauses = [0.0], []

    def sleep(seconds):
        now[0] += seconds
        pauses.append(seconds)

    monkeypatch.setattr("tstore.objects.s3_calls.time.monotonic", lambda: now[0])
    monkeypatch.setattr("tstore.objects.s3_calls.time.sleep", sleep)
    patience = Patience(30.0)
    while patience.pause():
        assert now[0] <= 30
    assert now[0] == pytest.approx(30)
    assert pauses[0] <= 0.1
    assert max(pauses) <= 5
    assert len(set(pauses)) == len(pauses), "no two clients keep in step"
    patience.progress()
    assert patience.pause()
    assert pauses[-1] <= 0.1


def test_more_faults_than_boto3_gets_over_are_waited_out(s3, monkeypatch):
    with faulty_proxy(s3.endpoint) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        objects = open_objects(s3.uri())
        proxy.once(Fault.UNAVAILABLE, "PUT", times=9)
        objects.put_new("k", [b"x"])
        proxy.once(Fault.DROPPED, "GET", times=9)
        assert objects.get("k") == b"x"
        assert proxy.planned == 0


def test_a_server_that_was_killed_comes_back_with_what_was_put(s3, monkeypatch, tmp_path):
    with seaweed(tmp_path) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
        objects = open_objects(server.uri())
        objects.put("k", [b"kept"])
        server.kill()
        with pytest.raises(ObjectStoreUnavailableError):
            impatient(objects).get("k")
        server.start()
        assert objects.get("k") == b"kept"


# --- configuration ----------------------------------------------------------------------------


def test_configuration_comes_from_the_usual_places(s3, monkeypatch, tmp_path):
    assert S3Config.from_environment() == S3Config(s3.endpoint, "us-east-1")
    profile = tmp_path / "config"
    profile.write_text("[profile other]\nregion=eu-west-1\ns3=\n  addressing_style=virtual\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(profile))
    monkeypatch.setenv("AWS_PROFILE", "other")
    monkeypatch.delenv("AWS_REGION")
    found = S3Config.from_environment()
    assert found == S3Config(s3.endpoint, "eu-west-1", virtual_hosts=True)
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    assert S3Config.from_environment().endpoint is None
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "https://s3.example.org")
    assert S3Config.from_environment().endpoint == "https://s3.example.org"


@pytest.mark.parametrize("style", ["path", "virtual"])
def test_requests_go_where_the_configuration_says(s3, style):
    config = S3Config("https://s3.example.org", "us-east-1", virtual_hosts=style == "virtual")
    url = config.client().generate_presigned_url("get_object", {"Bucket": "bucket", "Key": "k"})
    expected = {"path": "s3.example.org/bucket/k?", "virtual": "bucket.s3.example.org/k?"}[style]
    assert url.startswith(f"https://{expected}")


def test_clients_are_shared_but_not_across_a_fork(s3):
    objects = open_objects(s3.uri())
    objects.put("k", [b"x"])
    client = objects._calls.config.client()
    assert open_objects(s3.uri())._calls.config.client() is client
    child = os.fork()
    if not child:
        same = objects._calls.config.client() is client
        os._exit(0 if objects.get("k") == b"x" and not same else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert objects.get("k") == b"x"


# --- probe ------------------------------------------------------------------------------------


class Forgetful(S3Calls):
    """A server that overwrites whatever the conditions say."""

    def call(self, operation, key=None, **arguments):
        for name in self.ignored.get(operation, ()):
            arguments.pop(name, None)
        return super().call(operation, key, **arguments)


@pytest.mark.parametrize(
    ("ignored", "found"),
    [
        ({"put_object": ["IfNoneMatch"]}, "a second create-only put replaced the first"),
        ({"put_object": ["IfMatch"]}, "a conditional put replaced another version"),
        (
            {"complete_multipart_upload": ["IfNoneMatch"]},
            "a second create-only put in parts replaced the first",
        ),
        (
            {"complete_multipart_upload": ["IfMatch"]},
            "a conditional put in parts replaced another version",
        ),
    ],
)
def test_a_server_that_overwrites_is_refused(s3, ignored, found):
    objects = open_objects(s3.uri())
    calls = Forgetful(
        objects._calls.bucket, objects._calls.prefix.rstrip("/"), objects._calls.config
    )
    calls.ignored = ignored
    with pytest.raises(ConditionalPutUnsupportedError, match=f"found: {found}; use a server"):
        check_conditional_puts(calls, S3Uploads(calls, S3Transfers()))
    assert list(objects.list("")) == []


def test_a_server_that_refuses_the_right_version_is_refused(s3, monkeypatch):
    objects = open_objects(s3.uri())
    put = objects._uploads.put
    monkeypatch.setattr(objects._uploads, "put", lambda key, parts, **c: put(key, parts, **c)[::-1])
    with pytest.raises(ConditionalPutUnsupportedError, match="put refused the version that is"):
        objects.probe()


def test_a_server_that_does_not_know_conditions_is_refused(s3, monkeypatch):
    objects = open_objects(s3.uri())

    def unknown(key, parts, **condition):
        raise RequestRefusedError("found NotImplemented")

    monkeypatch.setattr(objects._uploads, "put", unknown)
    with pytest.raises(ConditionalPutUnsupportedError, match="found: found NotImplemented; use"):
        objects.probe()
