"""The whole pipeline on every kind of object store, and over a network that fails."""

import boto3
import pytest

from support.faulty_proxy import ONE_IN_FIVE, Fault, faulty_proxy
from support.hubs import file_hashes
from support.inline import ingest_inline
from support.memory_objects import memory_stores
from support.seaweed import BUCKET
from tstore.catalog import keys, open_store
from tstore.errors import HubLayoutError
from tstore.objects import open_objects
from tstore.restore.describe import list_repos
from tstore.restore.files import restore_repo
from tstore.restore.verify import verify
from tstore.settings import KIB, TaskSettings

SMALL = TaskSettings(scan_nbytes=200 * KIB, encode_nbytes=100 * KIB)


def pack_names(uri):
    return [info.key for info in open_objects(str(uri)).list(keys.PACKS)]


def upload(folder, uri):
    """Every file below a directory as an object."""
    client = boto3.client("s3")
    prefix = uri.removeprefix(f"s3://{BUCKET}/")
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            key = f"{prefix}/{path.relative_to(folder).as_posix()}"
            client.put_object(Bucket=BUCKET, Key=key, Body=path.read_bytes())


def check_same(uri, local_store, hub, out):
    """The store at `uri` is sound, has the packs of the local one, and gives back the hub."""
    store = open_store(uri)
    assert pack_names(uri) == pack_names(local_store)
    assert verify(store, read_data=True).problems == []
    for repo in list_repos(store):
        restore_repo(store, repo.repo, out / repo.repo)
    assert file_hashes(out) == file_hashes(hub)


@pytest.fixture(scope="module")
def local_store(small_hub, tmp_path_factory):
    """The small hub in packs of some tensors each."""
    store = tmp_path_factory.mktemp("local") / "store"
    ingest_inline(small_hub, store, tasks=SMALL)
    assert len(pack_names(store)) > 5
    return store


def test_a_store_in_memory(small_hub, local_store, tmp_path):
    with memory_stores():
        ingest_inline(small_hub, "memory://store", tasks=SMALL)
        check_same("memory://store", local_store, small_hub, tmp_path)


def test_hub_and_store_in_s3(s3, small_hub, local_store, tmp_path):
    hub, store = s3.uri("hub"), s3.uri("store")
    upload(small_hub, hub)
    report = ingest_inline(hub, store, tasks=SMALL)
    assert report.counts["files_rejected"] == 1
    check_same(store, local_store, small_hub, tmp_path / "first")

    assert ingest_inline(hub, store, tasks=SMALL).run_id is None, "nothing is new"

    changed = tmp_path / "changed"
    (changed / "lab/tuned").mkdir(parents=True)
    (changed / "lab/tuned/README.md").write_text("# another\n")
    upload(changed, hub)
    again = ingest_inline(hub, store, tasks=SMALL)
    assert again.counts["files"] == 1
    restore_repo(open_store(store), "lab/tuned", tmp_path / "tuned")
    assert (tmp_path / "tuned/README.md").read_text() == "# another\n"


def test_a_network_that_fails_one_request_in_five(
    s3, small_hub, local_store, tmp_path, monkeypatch
):
    hub, store = s3.uri("hub"), s3.uri("store")
    upload(small_hub, hub)
    with faulty_proxy(s3.endpoint, ONE_IN_FIVE, seed=5) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        ingest_inline(hub, store, tasks=SMALL)
        check_same(store, local_store, small_hub, tmp_path)
    fired = [fault for fault in proxy.fired if fault is not Fault.DELAYED]
    assert len(fired) >= 4
    assert proxy.fired.total() > 20


def test_a_hub_inside_the_store_is_refused(s3, small_hub):
    store = s3.uri("store")
    upload(small_hub / "lab", f"{store}/lab")
    with pytest.raises(HubLayoutError, match="apart from one another"):
        ingest_inline(f"{store}/lab", store)
