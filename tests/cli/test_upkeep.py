"""Commands that keep a store small: what they print, and their exit codes."""

from __future__ import annotations

import json
import shutil
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from unittest import mock

import pytest
import typer
from typer.testing import CliRunner

from support.hubs import file_hashes
from support.inline import run_stage_inline
from tstore.cli.main import app
from tstore.cli.removing import parse_age
from tstore.cli.tables import parse_nbytes, parse_share


@pytest.fixture
def store(small_store, tmp_path):
    return shutil.copytree(small_store, tmp_path / "store")


@contextmanager
def without_ray():
    with (
        mock.patch("tstore.cluster.job.fan_out", run_stage_inline),
        mock.patch("tstore.cluster.replan.ray_session", nullcontext),
        mock.patch("tstore.cluster.gc.ray_session", nullcontext),
    ):
        yield


def run(*arguments):
    with without_ray():
        return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_remove_and_take_back(store):
    before = run("ls", store).stdout
    removed = run("rm", store, "lab/tuned")
    assert removed.exit_code == 0
    assert removed.stdout.startswith("removed lab/tuned (main): 3 files, ")
    assert "lab/tuned" not in run("ls", store).stdout
    back = run("undelete", store, "lab/tuned")
    assert back.stdout.startswith("lab/tuned (main) is back: 3 files, ")
    assert run("ls", store).stdout == before


@pytest.mark.parametrize("command", ["rm", "undelete"])
def test_what_is_not_there_is_one_line_and_exit_code_2(store, command):
    result = run(command, store, "lab/nothing")
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: expected a")


def test_gc_does_nothing_unless_told_to(store):
    run("rm", store, "other/unrelated")
    before = file_hashes(store)
    result = run("gc", "--store", store, "--compact-below", "99%", "--json")
    assert result.exit_code == 0
    assert result.stderr.splitlines()[-1] == "dry run: nothing was changed; --delete does it"
    counts = json.loads(result.stdout)
    assert (counts["run"], counts["packs"], counts["sparse"]) == (None, 1, 1)
    assert file_hashes(store) == before


def test_gc_says_what_it_did(store):
    run("rm", store, "other/unrelated")
    first = run("gc", "--store", store, "--delete", "--compact-below", "99%")
    assert "1 pack, " in first.stderr
    assert " with little of use: " in first.stderr
    second = run("gc", "--store", store, "--delete", "--grace", "0s", "--json")
    assert "not needed for 0s: deleted" in second.stderr
    assert json.loads(second.stdout)["due"] == 1
    third = run("gc", "--store", store, "--delete", "--grace", "0s")
    assert len(third.stderr.splitlines()) == 1


def test_replan_says_what_was_promised_and_what_came_out(store):
    dry = run("replan", "--store", store, "--dry-run")
    assert dry.exit_code == 0
    assert "promised: " in dry.stderr
    assert dry.stderr.splitlines()[-1] == "dry run: nothing was written"
    done = run("replan", "--store", store, "--json")
    assert "came out: " in done.stderr
    assert json.loads(done.stdout)["run"]
    again = run("replan", "--store", store)
    assert "nothing has arrived since the last replan; --all looks at everything" in again.stderr


@pytest.mark.parametrize("command", ["replan", "gc"])
def test_without_a_store_there_is_one_line(tmp_path, command):
    result = run(command, "--store", tmp_path / "nothing")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: expected a tstore store at ")


@pytest.mark.parametrize(
    "options",
    [
        ("gc", "--grace", "soon"),
        ("replan", "--min-gain", "much"),
        ("replan", "--max-rewrite", "all"),
    ],
)
def test_a_garbled_option_is_a_usage_error(store, options):
    command, *rest = options
    result = run(command, "--store", store, *rest)
    assert result.exit_code == 2
    assert "Usage: " in result.stderr
    assert "such as" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [("50GiB", 50 << 30), ("1.5 MB", 1_500_000), ("12", 12), ("3kib", 3072), ("2T", 2 * 10**12)],
)
def test_sizes(text, nbytes):
    assert parse_nbytes(text) == nbytes


@pytest.mark.parametrize(("text", "share"), [("2%", 0.02), ("0.5", 0.5), ("100%", 1.0)])
def test_shares(text, share):
    assert parse_share(text) == share


@pytest.mark.parametrize(
    ("text", "age"),
    [("7d", timedelta(days=7)), ("90m", timedelta(minutes=90)), ("0s", timedelta(0))],
)
def test_ages(text, age):
    assert parse_age(text) == age


@pytest.mark.parametrize("parse", [parse_nbytes, parse_share, parse_age])
@pytest.mark.parametrize("text", ["", "-1", "many", "1 2", "150%GB"])
def test_garbled_values_are_refused(parse, text):
    with pytest.raises(typer.BadParameter, match="such as"):
        parse(text)
