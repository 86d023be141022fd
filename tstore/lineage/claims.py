"""What a repository says of its own origin: README front matter and configurations."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator

import duckdb

from tstore.catalog import Store
from tstore.lineage.models import Model
from tstore.restore.files import file_pieces
from tstore.restore.lookup import StoredFile, blobs_for, files_of
from tstore.restore.reader import TensorReader
from tstore.settings import MIB

_JSON_KEYS = {
    "config.json": "_name_or_path",
    "adapter_config.json": "base_model_name_or_path",
}
MAX_NBYTES = MIB
"""A larger card or configuration is not read."""


def base_models(readme: str) -> list[str]:
    """``base_model`` of the front matter of a model card: a name, or a list of them.

    Only what cards use of YAML is understood: a scalar, ``[a, b]``, or lines ``- a``.
    """
    lines = readme.splitlines()
    if not lines or lines[0].strip() != "---":
        return []
    names: list[str] = []
    in_list = False
    for line in lines[1:]:
        text = line.split(" #", 1)[0].strip()
        if text in ("---", "..."):
            break
        if in_list and text.startswith("- "):
            names.append(_unquoted(text[2:]))
            continue
        in_list = False
        key, colon, value = text.partition(":")
        if colon and key == "base_model" and not line[0].isspace():
            value = value.strip()
            in_list = not value
            names += [_unquoted(item) for item in value.strip("[]").split(",") if item.strip()]
    return [name for name in names if name]


def _unquoted(text: str) -> str:
    return text.strip().strip("'\"").strip()


def read_claims(
    store: Store, connection: duckdb.DuckDBPyConnection, model: Model
) -> dict[str, list[str]]:
    """Names of base models by the file that says so; what a model says of itself is left out.

    Raises
    ------
    BlobMissingError, BlobDamagedError, FileMismatchError
        The store is damaged.
    """
    folders = {"", model.folder}
    files = [
        file
        for file in files_of(connection, model.repo, model.revision)
        if posixpath.dirname(file.path) in folders
        and posixpath.basename(file.path) in ("README.md", *_JSON_KEYS)
        and file.nbytes <= MAX_NBYTES
    ]
    reader = TensorReader(store.objects, blobs_for(connection, files))
    claims = {}
    for file in files:
        names = [name for name in _named(file, reader) if name not in (model.repo, model.name)]
        if names:
            claims[file.path] = list(dict.fromkeys(names))
    return claims


def _named(file: StoredFile, reader: TensorReader) -> Iterator[str]:
    text = b"".join(piece.tobytes() for piece in file_pieces(file, reader)).decode(errors="replace")
    base = posixpath.basename(file.path)
    if base not in _JSON_KEYS:
        yield from base_models(text)
        return
    try:
        values = json.loads(text)
    except ValueError:  # people upload what they like; it then says nothing
        return
    name = values.get(_JSON_KEYS[base]) if isinstance(values, dict) else None
    if isinstance(name, str) and name:
        yield name
