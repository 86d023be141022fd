"""A real S3 server for tests: SeaweedFS on free ports, with credentials."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

_START_TIMEOUT_S = 60.0
_ACCESS_KEY, _SECRET_KEY = "tester", "secret-of-tester"
_GRPC = 10_000
"""SeaweedFS takes a second port this much above each of its ports."""
BUCKET = "tests"


class Seaweed:
    """A server whose data outlives its process.

    Parameters
    ----------
    folder : Path
        Where it keeps data, configuration and log.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ports = _free_ports(4)
        self._server: subprocess.Popen[bytes] | None = None
        self.endpoint = f"http://127.0.0.1:{self._ports[0]}"

    @property
    def environment(self) -> dict[str, str]:
        """Variables with which programs find the server, and no profiles."""
        return {
            "AWS_ACCESS_KEY_ID": _ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": _SECRET_KEY,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": "us-east-1",
            "AWS_CONFIG_FILE": "/dev/null",
            "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def uri(self, name: str = "store") -> str:
        """A location below which there is nothing yet."""
        return f"s3://{BUCKET}/{name}-{uuid.uuid4().hex[:12]}"

    def start(self) -> None:
        """Start, or start again with the same data; return when puts work."""
        data = self._folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        accounts = self._folder / "s3.json"
        credentials = [{"accessKey": _ACCESS_KEY, "secretKey": _SECRET_KEY}]
        actions = ["Admin", "Read", "Write", "List"]
        identity = {"name": "tester", "credentials": credentials, "actions": actions}
        accounts.write_text(json.dumps({"identities": [identity]}))
        s3, master, volume, filer = self._ports
        command = [str(Path(sys.executable).parent / "weed"), "-logtostderr=true", "server"]
        command += [f"-dir={data}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3"]
        command += [f"-master.port={master}", f"-volume.port={volume}", f"-filer.port={filer}"]
        command += [f"-s3.port={s3}", "-s3.port.iceberg=0", "-s3.port.lance=0"]
        command += [f"-s3.config={accounts}", "-volume.max=500", "-master.volumeSizeLimitMB=64"]
        command += ["-master.electionTimeout=1s"]  # a restarted master waits for it
        # It would take credentials in its own environment for one more account.
        environment = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
        with (self._folder / "log").open("ab") as log:
            self._server = subprocess.Popen(
                command,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._wait_until_puts_work()

    def kill(self) -> None:
        """End at once, as a power cut would; what was put is kept."""
        if self._server is not None:
            os.killpg(self._server.pid, signal.SIGKILL)
            self._server.wait()
            self._server = None
            for port in (*self._ports, *(port + _GRPC for port in self._ports)):
                for left in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
                    left.unlink()

    def _wait_until_puts_work(self) -> None:
        client = boto3.Session(_ACCESS_KEY, _SECRET_KEY).client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            config=Config(retries={"total_max_attempts": 1}),
        )
        deadline = time.monotonic() + _START_TIMEOUT_S
        while True:
            try:
                with suppress(
                    client.exceptions.BucketAlreadyExists,
                    client.exceptions.BucketAlreadyOwnedByYou,
                ):
                    client.create_bucket(Bucket=BUCKET)
                client.put_object(Bucket=BUCKET, Key="up", Body=b"yes")
                return
            except (BotoCoreError, ClientError) as error:
                assert self._server is not None
                if self._server.poll() is not None or time.monotonic() > deadline:
                    log = (self._folder / "log").read_text(errors="replace")
                    raise RuntimeError(f"expected SeaweedFS to start, found:\n{log}") from error
            time.sleep(0.1)


@contextmanager
def seaweed(folder: Path | None = None) -> Iterator[Seaweed]:
    """A running server; it ends with the block, and so does a folder that was not given."""
    with ExitStack() as stack:
        if folder is None:
            folder = Path(tempfile.mkdtemp(prefix="seaweed-"))
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
        server = Seaweed(folder)
        stack.callback(server.kill)
        server.start()
        yield server


@pytest.fixture(scope="session")
def s3_server() -> Iterator[Seaweed]:
    """The one server of a test session; not to be stopped."""
    with seaweed() as server:
        yield server


@pytest.fixture
def s3(s3_server: Seaweed, monkeypatch: pytest.MonkeyPatch) -> Seaweed:
    """The server of the session, found by whatever the test starts."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    return s3_server


def _free_ports(count: int) -> list[int]:
    """Free TCP ports whose second ports are free too."""
    found: list[int] = []
    while len(found) < count:
        with ExitStack() as stack:
            low = stack.enter_context(socket.socket())
            high = stack.enter_context(socket.socket())
            low.bind(("127.0.0.1", 0))
            port = low.getsockname()[1]
            if port > 55_000 or port in found:
                continue
            try:
                high.bind(("127.0.0.1", port + _GRPC))
            except OSError:
                continue
            found.append(port)
    return found
