"""Hub and store must lie apart."""

import pytest

from tstore.hub.overlap import hub_overlaps


@pytest.mark.parametrize(
    ("hub", "store", "expected"),
    [
        ("s3://b/hub", "s3://b/hub", True),
        ("s3://b/hub", "s3://b/hub/", True),
        ("s3://b/hub", "s3://b/hub/store", True),
        ("s3://b/hub/deep", "s3://b/hub", True),
        ("s3://b", "s3://b/store", True),
        ("s3://b/hub", "s3://b", True),
        ("s3://b/hub", "s3://b/hub2", False),
        ("s3://b/hub", "s3://b/store", False),
        ("s3://b/x", "s3://c/x", False),
        ("s3://b", "s3://bb", False),
        ("/", "s3://b/hub", False),
        ("s3://b/hub", "/b/hub", False),
        ("s3://b/hub", "file:///b/hub", False),
        ("s3://b/hub", "memory://b/hub", False),
    ],
)
def test_prefixes_overlap_by_whole_names(hub, store, expected):
    assert hub_overlaps(hub, store) is expected
    assert hub_overlaps(store, hub) is expected


def test_directories_overlap_by_what_they_really_are(tmp_path, monkeypatch):
    (tmp_path / "hub").mkdir()
    (tmp_path / "link").symlink_to("hub")
    monkeypatch.chdir(tmp_path)
    hub = str(tmp_path / "hub")
    for store in [hub, f"{hub}/", f"{hub}/store", "hub/store", "link/store", f"file://{hub}", "/"]:
        assert hub_overlaps(hub, store), store
    for store in ["store", f"{hub}2", "hub/../store", f"file://{hub}2/x"]:
        assert not hub_overlaps(hub, store), store
