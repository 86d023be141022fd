"""``jobs/ingest.py`` as a user runs it: its own Ray, the example hub, exit codes, JSON."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.hubs import file_hashes
from support.inline import ingest_inline
from tstore.catalog import open_store
from tstore.restore.describe import list_repos
from tstore.restore.files import restore_repo

ROOT = Path(__file__).parents[2]
HUB = ROOT / "examples" / "hub"
JOB = ROOT / "jobs" / "ingest.py"
KEYS = {
    *("bytes_in", "bytes_after_dedup", "bytes_stored", "bytes_catalog", "files"),
    *("files_rejected", "tensors", "tensors_unique", "stages"),
}


def job(*args: str | Path, code: int) -> tuple[dict[str, Any], str]:
    """Run the job without any cluster around; its JSON and its stderr."""
    environment = {name: value for name, value in os.environ.items() if "RAY" not in name}
    done = subprocess.run(
        [sys.executable, JOB, *args, "--json"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == code, done.stderr
    lines = done.stdout.splitlines()
    return (json.loads(lines[-1]) if lines else {}), done.stderr


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example hub without its broken repository and one more."""
    hub = tmp_path_factory.mktemp("hub") / "hub"
    left_out = shutil.ignore_patterns("broken", "pygpt-renamed")
    shutil.copytree(HUB, hub, ignore=left_out)
    return hub


@pytest.fixture(scope="module")
def ingested(hub: Path) -> tuple[Path, dict[str, Any]]:
    store = hub.parent / "store"
    counts, _ = job("--hub", hub, "--store", store, code=0)
    return store, counts


def test_everything_comes_back_identical(
    hub: Path, ingested: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    store, counts = ingested
    assert counts.keys() >= KEYS
    assert counts["bytes_in"] == sum(p.stat().st_size for p in hub.rglob("*") if p.is_file())
    assert counts["bytes_stored"] < counts["bytes_after_dedup"] < counts["bytes_in"]
    opened = open_store(str(store))
    for repo in list_repos(opened):
        restore_repo(opened, repo.repo, tmp_path / repo.repo)
    assert file_hashes(tmp_path) == file_hashes(hub)


def test_packs_do_not_depend_on_the_workers(
    hub: Path, ingested: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    store, _ = ingested
    ingest_inline(hub, tmp_path / "store")
    packs = [path.name for path in sorted((store / "packs").rglob("*.safetensors"))]
    assert packs == [p.name for p in sorted((tmp_path / "store/packs").rglob("*.safetensors"))]


def test_a_second_run_takes_only_what_is_new(
    hub: Path, ingested: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    store = tmp_path / "store"
    shutil.copytree(ingested[0], store)
    again, told = job("--hub", hub, "--store", store, code=0)
    assert again["run"] is None
    assert again["stages"] == {}
    assert "nothing new" in told

    arrived = ("broken/pygpt-truncated", "zeta/pygpt-renamed")
    try:
        for path in arrived:
            shutil.copytree(HUB / path, hub / path)
        more, told = job("--hub", hub, "--store", store, code=1)
    finally:
        for path in arrived:
            shutil.rmtree(hub / path)
    assert more["files"] == sum(len(file_hashes(HUB / path)) for path in arrived)
    assert more["files_rejected"] == 1
    assert "kept as opaque bytes" in told
    assert set(arrived) < {repo.repo for repo in list_repos(open_store(str(store)))}
    restore_repo(open_store(str(store)), "broken/pygpt-truncated", tmp_path / "broken")
    assert file_hashes(tmp_path / "broken") == file_hashes(HUB / "broken/pygpt-truncated")
    new = open_store(str(store)).catalog().runs[-1]
    assert new.counts["tensors_unique"] < more["tensors"]


def test_a_dry_run_predicts_and_writes_nothing(hub: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    counts, _ = job("--hub", hub, "--store", store, "--dry-run", code=0)
    assert not store.exists()
    assert 0 < counts["bytes_stored"] < counts["bytes_in"]


def test_no_hub_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    _, told = job("--hub", tmp_path / "nowhere", "--store", tmp_path / "store", code=2)
    assert told.startswith("error: ")
    assert len(told.splitlines()) == 1


def test_an_unknown_codec_is_one_line_and_exit_code_2(hub: Path, tmp_path: Path) -> None:
    _, told = job("--hub", hub, "--store", tmp_path / "store", "--codec", "gzip", code=2)
    assert "gzip" in told
    assert len(told.splitlines()) == 1
