"""An empty object store of each kind."""

import pytest

from support.faulty_proxy import ONE_IN_FIVE, faulty_proxy
from support.memory_objects import memory_stores
from tstore.objects import open_objects


@pytest.fixture(scope="session")
def faulty_s3_server(s3_server):
    """The server of the session behind a proxy that spoils one request in five."""
    with faulty_proxy(s3_server.endpoint, ONE_IN_FIVE, seed=7) as proxy:
        yield proxy


@pytest.fixture
def s3_objects(s3):
    return open_objects(s3.uri())


@pytest.fixture
def faulty_s3_objects(s3, faulty_s3_server, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", faulty_s3_server.endpoint)
    return open_objects(s3.uri())


@pytest.fixture
def local_objects(tmp_path):
    return open_objects(str(tmp_path / "root"))


@pytest.fixture
def memory_objects():
    with memory_stores():
        yield open_objects("memory://root")


@pytest.fixture(params=["memory", "local", "s3", "faulty_s3"])
def objects(request):
    """An empty store of each kind; the last fails one request in five."""
    return request.getfixturevalue(f"{request.param}_objects")


@pytest.fixture(params=["local", "s3"])
def shared_objects(request):
    """An empty store of each kind that other processes can open, too."""
    return request.getfixturevalue(f"{request.param}_objects")
