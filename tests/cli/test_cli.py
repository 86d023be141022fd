"""The command line: what it prints, and its exit codes."""

import errno
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import tstore
import tstore_codecs
from support.hubs import file_hashes
from support.stores import edit_rows, pack_file
from tstore.catalog import open_store
from tstore.catalog.store import open_or_create
from tstore.cli import main as main_module
from tstore.cli.main import app
from tstore.cli.tables import human
from tstore.settings import SketchSettings

REPOS = ["lab/base", "lab/broken", "lab/tuned", "mirror/base-again", "other/unrelated"]


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def succeed(*arguments):
    """Lines on stdout of a command that must succeed and say nothing on stderr."""
    result = run(*arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout.splitlines()


def fail(*arguments):
    """The one line on stderr of a command that must fail."""
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    return line


# --- ls ---------------------------------------------------------------------------------------


def test_ls_has_one_repository_a_line_the_id_first(small_store):
    lines = succeed("ls", small_store)
    assert [line.split()[0] for line in lines] == REPOS
    assert lines[1].split() == ["lab/broken", "2", "files", "74.0", "kB", "main"]
    assert len({line.index(" files ") for line in lines}) == 1, "columns are aligned"


def test_ls_of_an_empty_store(tmp_path):
    open_or_create(str(tmp_path), SketchSettings())
    assert succeed("ls", tmp_path) == []


# --- info -------------------------------------------------------------------------------------


def test_info_shows_files_tensors_and_totals(small_hub, small_store):
    lines = succeed("info", small_store, "lab/tuned")
    assert lines[0].strip() == "lab/tuned at main"
    digests = file_hashes(small_hub / "lab/tuned")
    for path, digest in digests.items():
        (row,) = [line for line in lines if line.startswith(path)]
        assert digest[:16] in row
    tensors = {line.split()[0]: line for line in lines if line.startswith("layer.")}
    assert list(tensors) == [f"layer.{n}.weight" for n in range(6)]
    assert all(line.split()[1:3] == ["BF16", "128×96"] for line in tensors.values())
    deltas = [line for line in tensors.values() if " delta " in line]
    assert deltas
    assert all("ulprow" in line and "lab/base layer." in line for line in deltas)
    raw = sum(path.stat().st_size for path in (small_hub / "lab/tuned").iterdir())
    assert lines[-1].startswith(f"{human(raw)} raw; its blobs take ")


def test_info_of_a_repository_without_tensors(small_store):
    lines = succeed("info", small_store, "lab/broken")
    assert any(line.startswith("empty.txt") for line in lines)
    assert "0 B of which other repositories use too" in lines[-1]


def test_info_counts_what_others_use_too(small_store):
    (line,) = succeed("info", small_store, "mirror/base-again")[-1:]
    assert " 0 B of which" not in line


@pytest.mark.parametrize("option", [[], ["--revision", "main"]])
def test_info_of_a_revision(small_store, option):
    assert succeed("info", small_store, "lab/base", *option)[0].strip() == "lab/base at main"


# --- restore ----------------------------------------------------------------------------------


def test_restore(small_hub, small_store, tmp_path):
    (line,) = succeed("restore", small_store, "lab/base", tmp_path / "out")
    assert line.startswith("3 files, ")
    assert line.endswith(f", to {tmp_path}/out")
    assert file_hashes(tmp_path / "out") == file_hashes(small_hub / "lab/base")
    (line,) = succeed("restore", small_store, "lab/base", tmp_path / "out")
    assert line.endswith("(3 were there already)")


def test_restore_an_old_state(small_hub, small_store, tmp_path):
    (run_,) = open_store(str(small_store)).catalog().runs
    revision = f"main@{run_.run_id}"
    succeed("restore", small_store, "lab/base", tmp_path / "out", "--revision", revision)
    assert file_hashes(tmp_path / "out") == file_hashes(small_hub / "lab/base")


# --- verify -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "end"),
    [([], "all present; --read-data also decodes them"), (["--read-data"], "decoded and compared")],
)
def test_verify_a_sound_store(small_store, option, end):
    (line,) = succeed("verify", small_store, *option)
    assert line.startswith("1 run, 14 files, 31 blobs, 1 pack: ")
    assert line.endswith(end)


def test_verify_a_damaged_store_exits_with_1_and_lists_the_problems(own_store):
    pack_file(own_store).unlink()
    result = run("verify", own_store)
    assert (result.exit_code, result.stderr) == (1, "")
    problem, summary = result.stdout.splitlines()
    assert problem.startswith("pack ")
    assert problem.endswith("found no object")
    assert summary.endswith(": 1 problem")


def test_verify_notices_a_flipped_bit_only_when_it_reads(own_store):
    path = pack_file(own_store)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert run("verify", own_store).exit_code == 0
    result = run("verify", own_store, "--read-data")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1].endswith("2 problems")


# --- errors -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command", [["ls"], ["info", "a/b"], ["restore", "a/b", "out"], ["verify"]], ids=lambda c: c[0]
)
def test_what_is_no_store(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    name, *rest = command
    line = fail(name, tmp_path / "nothing", *rest)
    assert line.startswith(f"error: expected a tstore store at {tmp_path}/nothing, found no")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["info", "restore"])
def test_unknown_repositories_and_revisions(small_store, tmp_path, command):
    rest = [tmp_path / "out"] if command == "restore" else []
    line = fail(command, small_store, "qwxyz", *rest)
    assert line == (
        "error: expected a repository 'qwxyz' in the store, found none; tstore ls shows them"
    )
    assert fail(command, small_store, "lab/tunde", *rest).endswith("did you mean lab/tuned?")
    line = fail(command, small_store, "lab/base", *rest, "--revision", "dev")
    assert line == "error: expected revision 'dev' of lab/base, found only main (main)"


def test_a_conflict(small_store, tmp_path):
    (tmp_path / "README.md").write_text("mine")
    assert "found one with other content" in fail("restore", small_store, "lab/base", tmp_path)


def test_a_destination_that_cannot_be_made(small_store, tmp_path):
    (tmp_path / "file").write_text("")
    line = fail("restore", small_store, "lab/base", tmp_path / "file" / "out")
    assert "Not a directory" in line


def test_a_damaged_catalog(own_store):
    (path,) = (own_store / "catalog/files").rglob("*.parquet")
    path.write_bytes(path.read_bytes()[:-1])
    line = fail("ls", own_store)
    assert line.startswith("error: catalog/files/2")


def test_markup_and_line_breaks_of_a_store_do_not_reach_the_terminal(own_store, tmp_path):
    def change(rows):
        for row in rows:
            if (row["repo"], row["path"]) == ("lab/base", "config.json"):
                row["path"] = "[bold]x[/nothing]\n\n/../y"

    edit_rows(own_store, "files", change)
    line = fail("restore", own_store, "lab/base", tmp_path / "out")
    assert "[bold]x[/nothing]" in line


@pytest.mark.parametrize(
    "error", [tstore_codecs.CodecError("two\nlines"), OSError(errno.ENOSPC, "No space left")]
)
def test_expected_errors_are_one_line(monkeypatch, small_store, error):
    def raise_it(store):
        raise error

    monkeypatch.setattr(main_module, "list_repos", raise_it)
    assert fail("ls", small_store) == "error: " + " ".join(str(error).split())


def test_a_defect_keeps_its_traceback(monkeypatch, small_store):
    def raise_it(store):
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(main_module, "list_repos", raise_it)
    result = run("ls", small_store)
    assert result.exit_code == 2
    assert "ZeroDivisionError: a defect" in result.stderr


@pytest.mark.parametrize(
    "arguments", [["nothing"], ["ls"], ["info", "store"], ["ls", "--what", "x"]]
)
def test_wrong_usage_exits_with_2(arguments):
    result = run(*arguments)
    assert result.exit_code == 2
    assert "Usage" in result.stderr


def test_version_and_help():
    assert succeed("--version") == [tstore.__version__]
    text = "\n".join(succeed("--help"))
    assert all(command in text for command in ("ls", "info", "restore", "verify"))


def test_as_a_program(small_store, tmp_path):
    """The same through a real process: no stray output, no warnings, the exit code."""
    program = [sys.executable, "-W", "error", "-c", "from tstore.cli.main import main; main()"]
    done = subprocess.run(
        [*program, "ls", small_store], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split()[0] for line in done.stdout.splitlines()] == REPOS
    done = subprocess.run([*program, "ls", tmp_path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: expected a tstore store")
    assert len(done.stderr.splitlines()) == 1
