"""What tests do to stores: restore everything, read all rows, damage them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from support.hubs import file_hashes
from tstore.catalog import Catalog, keys, open_store
from tstore.catalog.catalog import commit, write_tables
from tstore.catalog.schema import TABLES
from tstore.objects import open_objects
from tstore.restore.describe import list_repos
from tstore.restore.files import restore_repo
from tstore.restore.lookup import files_of

Tables = dict[str, pa.Table]
Row = dict[str, Any]


def restore_all(store: Path, destination: Path) -> Path:
    """Every repository of a store, in folders of its name."""
    opened = open_store(str(store))
    for repo in list_repos(opened):
        restore_repo(opened, repo.repo, destination / repo.repo)
    return destination


def committed_rows(store: Path) -> Tables:
    """All committed rows of every table, without the run."""
    catalog = Catalog(open_objects(str(store)))
    return {
        name: catalog.dataset(name).to_table(columns=schema.names).cast(schema)
        for name, schema in TABLES.items()
    }


def rewrite_run(store: Path, edit: Callable[[Tables], Tables]) -> None:
    """Replace the rows of a store's only run, as a broken or hostile writer could."""
    objects = open_objects(str(store))
    (run,) = Catalog(objects).runs
    parts = write_tables(objects, run.run_id, edit(committed_rows(store)))
    objects.delete(keys.run_marker(run.run_id))
    commit(objects, replace(run, tables=parts))


def edit_rows(store: Path, table: str, change: Callable[[list[Row]], list[Row] | None]) -> None:
    """`rewrite_run` with other rows in one table: those returned, or the same ones changed."""

    def edit(tables: Tables) -> Tables:
        rows = tables[table].to_pylist()
        return {**tables, table: pa.Table.from_pylist(change(rows) or rows, TABLES[table])}

    rewrite_run(store, edit)


def stored_hashes(store: Path) -> dict[str, str]:
    """SHA-256 of every current file by ``<repository>/<path>``, as the catalog tells it."""
    with open_store(str(store)).catalog().connect() as connection:
        return {f"{file.repo}/{file.path}": file.sha256 for file in files_of(connection)}


def pack_file(store: Path) -> Path:
    """The only pack of a store."""
    (pack,) = (store / "packs").rglob("*.safetensors")
    return pack


def upload(folder: Path, uri: str) -> str:
    """Put the files of a folder below a location."""
    objects = open_objects(uri)
    for path in file_hashes(folder):
        objects.put(path, [(folder / path).read_bytes()])
    return uri
