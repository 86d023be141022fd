"""Shards as Ray tasks: what is lost, what is tried again, what is in flight."""

from __future__ import annotations

import io
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import ray
from rich.console import Console

from support.hubs import file_hashes, write_family
from support.inline import ingest_inline, replan_inline
from support.memory_objects import memory_stores
from support.ray_head import forget_ray_processes
from tstore.activity import spending
from tstore.catalog import Store
from tstore.catalog.schema import SOURCES
from tstore.catalog.store import open_or_create
from tstore.catalog.workspace import Workspace
from tstore.cluster import ingest as ingest_module
from tstore.cluster import opening, planning
from tstore.cluster import replan as replan_module
from tstore.cluster.fanout import Stage, _Flight, fan_out
from tstore.cluster.ingest import IngestOptions, ingest
from tstore.cluster.replan import ReplanOptions, replan
from tstore.cluster.session import ray_session
from tstore.errors import ObjectStoreUnavailableError, StageFailedError, WorkerLostError
from tstore.settings import MIB, SketchSettings, TaskSettings

TASKS = TaskSettings(max_retries=1)


@dataclass(frozen=True)
class Words:
    """A shard of some words."""

    words: tuple[str, ...]
    nbytes: int = 100
    memory_nbytes: int = MIB

    @property
    def key(self) -> str:
        return "-".join(self.words)

    def halves(self) -> tuple[Words, ...]:
        middle = len(self.words) // 2
        parts = (self.words[:middle], self.words[middle:]) if middle else ()
        return tuple(replace(self, words=part) for part in parts)


def rows(words: tuple[str, ...], reason: str) -> dict[str, pa.Table]:
    cells = [{"source": word, "reason": reason, "readable": reason == "done"} for word in words]
    return {"sources": pa.Table.from_pylist(cells, SOURCES)}


def work(shard: Words, folder: Path) -> dict[str, pa.Table]:
    """Kill this worker at the word poison; leave a file per try, and rows."""
    for word in shard.words:
        (folder / f"{word}.{len(list(folder.glob(f'{word}.*')))}").touch()
        if word == "poison":
            os.kill(os.getpid(), signal.SIGKILL)
        if word == "wrong":
            raise ValueError("wrong data")
        if word == "away" and len(list(folder.glob("away.*"))) == 1:
            raise ObjectStoreUnavailableError("the server does not answer")
    with spending("read", shard.nbytes):
        pass
    return rows(shard.words, "done")


def lost(shard: Words, error: WorkerLostError) -> dict[str, pa.Table]:
    return rows(shard.words, type(error).__name__)


@pytest.fixture(scope="module", autouse=True)
def _cluster() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("RAY_ADDRESS", raising=False)
        with ray_session():
            ray.cloudpickle.register_pickle_by_value(__import__(__name__))  # type: ignore[attr-defined]
            yield
        forget_ray_processes()


class Fixture:
    """A workspace and a folder where tasks leave traces."""

    def __init__(self, root: Path) -> None:
        self.traces = root / "traces"
        self.traces.mkdir()
        self.workspace = Workspace(str(root / "store"), "w", "")
        self.told = io.StringIO()

    def run(self, *shards: Words, stage: Stage | None = None) -> dict[str, str]:
        """Reason by word."""
        stage = stage or Stage("words", work, lost)
        nbytes = sum(shard.nbytes for shard in shards)
        console = Console(file=self.told)
        self.report, keys = fan_out(
            stage, iter(shards), nbytes, (self.traces,), self.workspace, TASKS, console
        )
        table = self.workspace.rows("words", "sources", keys).to_table()
        return {row["source"]: row["reason"] for row in table.to_pylist()}

    def tries(self, word: str) -> int:
        return len(list(self.traces.glob(f"{word}.*")))


@pytest.fixture
def words(tmp_path: Path) -> Fixture:
    return Fixture(tmp_path)


def test_every_shard_is_run_once_and_counted(words: Fixture) -> None:
    assert words.run(Words(("a", "b")), Words(("c",), nbytes=50)) == dict.fromkeys("abc", "done")
    assert [words.tries(word) for word in "abc"] == [1, 1, 1]
    report = words.report
    assert (report.shards, report.shards_resumed, report.nbytes) == (2, 0, 150)
    assert report.activities["read"].nbytes == 150
    assert report.seconds > 0
    assert min(report.worker_memory.values()) > 10 * MIB


def test_what_kills_every_worker_costs_only_itself(words: Fixture) -> None:
    found = words.run(Words(("a", "b", "poison", "c")), Words(("d",)))
    assert found == {**dict.fromkeys("abcd", "done"), "poison": "WorkerLostError"}
    assert words.tries("poison") == 3 * (TASKS.max_retries + 1), "whole, half, alone"


def test_the_driver_writes_what_no_worker_reaches(words: Fixture) -> None:
    with memory_stores():
        words.workspace = Workspace("memory://driver", "w", "")
        with pytest.raises(StageFailedError, match="found scheme 'memory'"):
            words.run(Words(("a",)))
        words.workspace = replace(words.workspace, shared=False)
        assert words.run(Words(("b",)), Words(("c",))) == {"b": "done", "c": "done"}
        workers = {stats["worker"] for stats in words.workspace.finished("words").values()}
        assert workers == words.report.worker_memory.keys() != set()
        assert f"{socket.gethostname()}:{os.getpid()}" not in workers
        assert words.run(Words(("c",))) == {"c": "done"}
        assert words.report.shards_resumed == 1


def test_without_rows_for_what_is_lost_the_stage_fails(words: Fixture) -> None:
    with pytest.raises(StageFailedError, match="lost it 2 times"):
        words.run(Words(("poison",)), stage=Stage("words", work))


def test_wrong_data_is_not_tried_again(words: Fixture) -> None:
    with pytest.raises(StageFailedError, match="ValueError: wrong data"):
        words.run(Words(("wrong",)))
    assert words.tries("wrong") == 1


def test_an_object_store_that_was_away_is_tried_again(words: Fixture) -> None:
    assert words.run(Words(("away",))) == {"away": "done"}
    assert words.tries("away") == 2


def test_a_task_that_no_node_can_hold_is_told_at_once(words: Fixture) -> None:
    with pytest.raises(StageFailedError, match=r"expected a node with 1100\.0 GB.*larger node"):
        words.run(Words(("a",), memory_nbytes=1_100_000_000_000))


def test_bytes_in_flight_are_bounded_and_shards_taken_as_there_is_room(words: Fixture) -> None:
    taken: list[int] = []
    running: list[int] = []

    def shards() -> Iterator[Words]:
        for number in range(40):
            taken.append(number)
            yield Words((str(number),), nbytes=TASKS.in_flight_nbytes // 2)

    flight = _Flight(
        Stage("words", work), (words.traces,), words.workspace, TASKS, Console(file=io.StringIO())
    )
    for done, _ in enumerate(flight.run(shards())):
        running.append(len(taken) - done)
    cpus = int(ray.cluster_resources()["CPU"])
    assert len(running) == 40
    assert max(running) <= 2 * cpus + 1, "those in flight, and the one that waits for room"


def test_finished_shards_are_not_run_again(words: Fixture) -> None:
    words.run(Words(("a",)))
    assert words.run(Words(("a",)), Words(("b",))) == {"a": "done", "b": "done"}
    assert words.tries("a") == 1
    assert words.report.shards_resumed == 1


# --- dry runs ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hubs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A family of models, of which the store gets all but the fifth."""
    return write_family(tmp_path_factory.mktemp("hubs"), 6)


@pytest.fixture(scope="module")
def store(hubs: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("place") / "store"
    for hub in (*hubs[:4], hubs[5]):
        ingest_inline(hub, store)
    return store


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a dry run keeps for itself lies in the memory of the driver, as on a cluster that shares no
    disk; however little there is to plan, tasks do it if they can."""

    def own_workspace(folder: str, *args: Any, **how: Any) -> Workspace:
        return Workspace(f"memory://{folder}", *args, **how)

    def own_store(folder: str, sketch: SketchSettings) -> Store:
        return open_or_create(f"memory://{folder}", sketch)

    monkeypatch.setattr(opening, "Workspace", own_workspace)
    monkeypatch.setattr(ingest_module, "open_or_create", own_store)
    monkeypatch.setattr(planning, "FEW_SKETCHES", 0)
    for module in ingest_module, replan_module:
        monkeypatch.setattr(module, "ray_session", nullcontext)
    with memory_stores():
        yield


@pytest.mark.usefixtures("apart")
def test_a_dry_ingest_into_no_store_yet(small_hub: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    report = ingest(
        IngestOptions(hub=str(small_hub), store=str(store), dry_run=True),
        Console(file=io.StringIO()),
    )
    assert report.stages["scan"].shards > 0
    assert report.stages["measure"].shards > 0
    assert report.counts == ingest_inline(small_hub, store, dry_run=True).counts
    assert not store.exists()


@pytest.mark.usefixtures("apart")
def test_a_dry_ingest_into_a_store(hubs: list[Path], store: Path) -> None:
    before = file_hashes(store)
    report = ingest(
        IngestOptions(hub=str(hubs[4]), store=str(store), dry_run=True), Console(file=io.StringIO())
    )
    assert report.stages["scan"].shards > 0
    assert report.counts == ingest_inline(hubs[4], store, dry_run=True).counts
    assert 0 < report.counts["bytes_stored"] < report.counts["bytes_after_dedup"]
    assert file_hashes(store) == before


@pytest.mark.usefixtures("apart")
def test_a_dry_replan(store: Path) -> None:
    before = file_hashes(store)
    report = replan(ReplanOptions(store=str(store), dry_run=True), Console(file=io.StringIO()))
    assert report.stages["plan"].shards > 0, "tasks read the sketches in the store"
    assert report.counts["moves"] > 0
    assert report.counts == replan_inline(store, dry_run=True).counts
    assert file_hashes(store) == before
