"""The wheel, installed elsewhere, holds everything that it needs."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import tstore
import tstore_codecs

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory into which the wheel was unpacked."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def run_outside(site: Path, code: str, folder: Path) -> str:
    """Run Python code that sees the wheel, from a directory that is not the checkout."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(site)!r})\n{code}"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_module_imports_from_the_wheel(site: Path, tmp_path: Path) -> None:
    names = [
        module.name
        for package in (tstore, tstore_codecs)
        for module in pkgutil.walk_packages(package.__path__, package.__name__ + ".")
    ]
    assert len(names) > 40
    code = f"import importlib\nfor name in {names!r}:\n    importlib.import_module(name)\n"
    code += "import tstore, tstore_codecs\nprint(tstore.__file__, tstore_codecs.__file__)"
    for place in run_outside(site, code, tmp_path).split():
        assert place.startswith(str(site))


def test_the_wheel_encodes_decodes_and_runs_the_command_line(site: Path, tmp_path: Path) -> None:
    code = """
import subprocess, sys
import numpy as np, tstore_codecs
data = np.arange(4096, dtype=np.uint8)
blob = tstore_codecs.encode(data, dtype="BF16", codec="zipnn")
assert bytes(tstore_codecs.decode(blob)) == bytes(data)
sys.argv = ["tstore", "--version"]
from tstore.cli.main import main
main()
"""
    assert run_outside(site, code, tmp_path).strip() == tstore.__version__


def test_no_package_is_called_codecs(site: Path) -> None:
    """An importable top-level ``codecs`` would shadow the standard library's."""
    assert {path.name for path in site.iterdir() if path.is_dir() and "." not in path.name} == {
        "tstore",
        "tstore_codecs",
    }
