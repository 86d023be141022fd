"""``kill -9`` of the job at five moments, then the same command: the same store content."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support import small_tasks
from support.hubs import file_hashes
from support.ray_head import ray_head
from tstore.catalog import open_store
from tstore.catalog.schema import TABLES
from tstore.restore.describe import list_repos
from tstore.restore.files import restore_repo
from tstore.restore.verify import verify

pytestmark = pytest.mark.chaos
HUB = Path(__file__).parents[2] / "examples" / "hub"
TIMEOUT_S = 150


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    with ray_head() as environment:
        yield environment


def run(environment: dict[str, str], store: Path, moment: str = "") -> Any:
    """Run the job; the printed report, or the exit code of a dead process."""
    command = [sys.executable, small_tasks.__file__, str(HUB), str(store), moment]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    if done.returncode:
        assert moment, done.stderr
        return done.returncode
    return json.loads(done.stdout.splitlines()[-1])


def content(store: Path) -> dict[str, Any]:
    """Everything in a store but times and run ids."""
    packs = sorted(path.name for path in (store / "packs").rglob("*.safetensors"))
    tables = {}
    catalog = open_store(str(store)).catalog()
    for name, schema in TABLES.items():
        rows = catalog.dataset(name).to_table(columns=schema.names).to_pylist()
        tables[name] = sorted(json.dumps(row, sort_keys=True) for row in rows)
    return {"packs": packs, "tables": tables}


@pytest.fixture(scope="module")
def undisturbed(
    environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    store = tmp_path_factory.mktemp("undisturbed") / "store"
    report = run(environment, store)
    assert report["run"]
    assert sum(report["resumed"].values()) == 0
    return content(store)


@pytest.mark.parametrize("moment", small_tasks.MOMENTS)
def test_the_same_command_finishes_the_work(
    moment: str, environment: dict[str, str], undisturbed: dict[str, Any], tmp_path: Path
) -> None:
    store = tmp_path / "store"
    assert run(environment, store, moment) == -signal.SIGKILL
    committed = moment == "after-commit"
    assert len(open_store(str(store)).catalog().runs) == committed
    assert not verify(open_store(str(store)), read_data=True).problems

    report = run(environment, store)

    if committed:
        assert report["run"] is None
    else:
        assert report["resumed"]["scan"] >= 2, "work that was finished is not done again"
        assert report["resumed"].get("encode", 0) >= {"during-encode": 2}.get(moment, 0)
    assert content(store) == undisturbed
    opened = open_store(str(store))
    for repo in list_repos(opened):
        restore_repo(opened, repo.repo, tmp_path / "restored" / repo.repo)
    assert file_hashes(tmp_path / "restored") == file_hashes(HUB)
    assert not [path for path in (store / "staging").rglob("*") if path.is_file()]
