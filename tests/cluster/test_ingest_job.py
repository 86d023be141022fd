"""``jobs/ingest.py`` as a user runs it: its own Ray, the example hub, exit codes, JSON."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from support.hubs import file_hashes
from support.inline import ingest_inline
from support.jobs import EXAMPLES, run_ingest
from tstore.catalog import open_store
from tstore.cli.ingest import ingest_command
from tstore.restore.describe import list_repos
from tstore.restore.files import restore_repo

KEYS = {
    *("bytes_in", "bytes_after_dedup", "bytes_stored", "bytes_catalog", "files"),
    *("files_rejected", "tensors", "tensors_unique", "stages"),
}


def job(*args: str | Path, code: int) -> tuple[dict[str, Any], str]:
    """Run the job without any cluster around."""
    environment = {name: value for name, value in os.environ.items() if "RAY" not in name}
    return run_ingest(environment, *args, code=code)


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example hub without its broken repository."""
    hub = tmp_path_factory.mktemp("hub") / "hub"
    return shutil.copytree(EXAMPLES, hub, ignore=shutil.ignore_patterns("broken"))


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


def test_no_hub_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    _, told = job("--hub", tmp_path / "nowhere", "--store", tmp_path / "store", code=2)
    assert told.startswith("error: ")
    assert len(told.splitlines()) == 1


def test_an_unknown_codec_is_one_line_and_exit_code_2(hub: Path, tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(ingest_command)
    options = ["--hub", str(hub), "--store", str(tmp_path / "store"), "--codec", "gzip"]
    done = CliRunner().invoke(app, options)
    assert done.exit_code == 2
    assert "gzip" in done.stderr
    assert len(done.stderr.splitlines()) == 1
