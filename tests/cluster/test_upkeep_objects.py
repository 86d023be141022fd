"""Replan, rm and gc on a store in object storage, over a network that fails."""

from __future__ import annotations

from support.faulty_proxy import ONE_IN_FIVE, Fault, faulty_proxy
from support.hubs import file_hashes, write_family
from support.inline import gc_inline, ingest_inline, replan_inline, verify_inline
from support.stores import upload
from support.upkeep import rm
from tstore.catalog import keys, open_store
from tstore.objects import open_objects
from tstore.restore.files import restore_repo
from tstore.restore.verify import verify


def test_a_store_in_s3_is_kept_small(s3, tmp_path, monkeypatch):
    hubs = write_family(tmp_path / "hubs", 4)
    for hub in hubs:
        ingest_inline(hub, tmp_path / "store")
    store = upload(tmp_path / "store", s3.uri("store"))
    before = {info.key for info in open_objects(store).list(keys.PACKS)}
    with faulty_proxy(s3.endpoint, ONE_IN_FIVE, seed=3) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        report = replan_inline(store)
        assert report.counts["bytes_after"] < report.counts["bytes_before"]
        rm(store, "lab/m1")
        gc_inline(store, compact_below=1.0)
        gc_inline(store)
        assert verify_inline(store).problems == []
    assert sum(proxy.fired[fault] for fault in Fault if fault is not Fault.DELAYED) > 3
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    assert not before & {info.key for info in open_objects(store).list(keys.PACKS)}
    assert verify(open_store(store), read_data=True).problems == []
    for number in (0, 2, 3):
        out = tmp_path / f"out{number}"
        restore_repo(open_store(store), f"lab/m{number}", out)
        assert file_hashes(out) == file_hashes(hubs[number] / f"lab/m{number}")
