"""The models of a store: every folder of a revision that holds tensors."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tstore.catalog import Catalog
from tstore.hub.names import name_tail
from tstore.plan.stored import numbered_fingerprints

_COLUMNS = ["tensor_id", "plane_entropy"]
_NUMBER = re.compile(r"(\d+)")

_LAST = """
CREATE OR REPLACE TEMP TABLE fingerprint_rows AS
SELECT tensor_id, min(nth) AS "row", any_value(plane_entropy) AS plane_entropy
FROM numbered_fingerprints GROUP BY tensor_id
"""
_OCCURRENCES = """
SELECT t.repo, t.revision, t.path, t.name, coalesce(t.part, -1) AS part, t.tensor_id, t.dtype,
       t.shape, t.nbytes,
       CASE WHEN t.nbytes >= $min_nbytes THEN r."row" END AS "row",
       list_extract(r.plane_entropy, -1) AS entropy, list_extract(r.plane_entropy, 2) AS low
FROM tensors t JOIN current_files f USING (repo, revision, path, run)
LEFT JOIN fingerprint_rows r USING (tensor_id)
WHERE t.nbytes > 0
ORDER BY t.repo, t.revision, t.path, t.start, t.name
"""


@dataclass(frozen=True)
class Model:
    """Tensors of one folder of a revision; checkpoints of one training run are several.

    Attributes
    ----------
    repo, revision, folder : str
        Where it lies; the folder is empty at the top of the repository.
    name : str
        What people call it: ``repo``, ``repo/folder``; with ``@revision`` where there are several.
    nbytes : int
        Raw bytes of its tensors.
    n_tensors : int
    dtype : str
        That of most of its bytes.
    """

    repo: str
    revision: str
    folder: str
    name: str
    nbytes: int
    n_tensors: int
    dtype: str

    @property
    def order(self) -> tuple[tuple[str, int], ...]:
        """Key that sorts the folders of a repository as people count: 60 before 120."""
        words = _NUMBER.split(self.folder)
        padded = [*words, "-1"] if len(words) % 2 else words
        return tuple(zip(padded[::2], map(int, padded[1::2]), strict=True))


@dataclass(frozen=True)
class Occurrences:
    """Tensors of models, one row for each place where one lies.

    Attributes
    ----------
    models : tuple of Model
        Sorted by name.
    model : int64 (n,)
        Index of the model that a tensor belongs to.
    tensor : int64 (n,)
        Number of its content: equal for equal tensors.
    place : int64 (n,)
        Number of its place: name without prefix, dtype and size of a row.
    row : int64 (n,)
        Row of its fingerprint; -1 for a tensor without a sketch.
    nbytes : int64 (n,)
    entropy : float64 (n,)
        Of its highest byte plane, in bits per byte; nan if there is none.
    low : float64 (n,)
        The same of the second lowest byte plane; the lowest has the sign.
    dtypes : tuple of str
        By place.
    rows : int64 (n,)
        Length of the first dimension.
    names : tuple of str
        Name in the file.
    """

    models: tuple[Model, ...]
    model: NDArray[np.int64]
    tensor: NDArray[np.int64]
    place: NDArray[np.int64]
    row: NDArray[np.int64]
    nbytes: NDArray[np.int64]
    entropy: NDArray[np.float64]
    low: NDArray[np.float64]
    dtypes: tuple[str, ...]
    rows: NDArray[np.int64]
    names: tuple[str, ...]


def read_models(
    connection: duckdb.DuckDBPyConnection, catalog: Catalog, min_nbytes: int
) -> Occurrences:
    """All tensors of the current revisions, with the places of their fingerprints.

    Parameters
    ----------
    connection : DuckDBPyConnection
        `Catalog.connect`.
    catalog : Catalog
        The same.
    min_nbytes : int
        Smaller tensors have no sketch.
    """
    with numbered_fingerprints(connection, catalog, _COLUMNS):
        connection.execute(_LAST)
    table = connection.sql(_OCCURRENCES, params={"min_nbytes": min_nbytes}).to_arrow_table()
    return _occurrences(table)


def _occurrences(table: pa.Table) -> Occurrences:
    columns = {name: table[name].to_pylist() for name in ("repo", "revision", "path", "name")}
    folders = [posixpath.dirname(path) for path in columns["path"]]
    keys = list(zip(columns["repo"], columns["revision"], folders, strict=True))
    shapes, dtypes = table["shape"].to_pylist(), table["dtype"].to_pylist()
    places = [
        (name_tail(name), part, dtype, tuple(shape[1:]))
        for name, part, dtype, shape in zip(
            columns["name"], table["part"].to_pylist(), dtypes, shapes, strict=True
        )
    ]
    nbytes = table["nbytes"].to_numpy()
    models = _models(keys, nbytes, dtypes)
    index = {(m.repo, m.revision, m.folder): i for i, m in enumerate(models)}
    return Occurrences(
        models=models,
        model=np.array([index[key] for key in keys], dtype=np.int64),
        tensor=_numbered(table["tensor_id"].to_pylist()),
        place=_numbered(places),
        row=table["row"].fill_null(-1).to_numpy(),
        nbytes=nbytes,
        entropy=_floats(table["entropy"]),
        low=_floats(table["low"]),
        dtypes=tuple(place[2] for place in dict.fromkeys(places)),
        rows=np.array([shape[0] if shape else 1 for shape in shapes], dtype=np.int64),
        names=tuple(columns["name"]),
    )


def _numbered(keys: Sequence[Hashable]) -> NDArray[np.int64]:
    """Equal keys get equal numbers, in the order in which they come."""
    number = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    return np.array([number[key] for key in keys], dtype=np.int64)


def _floats(column: pa.ChunkedArray) -> NDArray[np.float64]:
    values: NDArray[np.float64] = column.cast(pa.float64()).fill_null(np.nan).to_numpy()
    return values


def _models(
    keys: list[tuple[str, str, str]], nbytes: NDArray[np.int64], dtypes: list[str]
) -> tuple[Model, ...]:
    """One model for each key."""
    sizes: dict[tuple[str, str, str], dict[str, int]] = {}
    counts: dict[tuple[str, str, str], int] = {}
    for key, size, dtype in zip(keys, nbytes.tolist(), dtypes, strict=True):
        of_dtype = sizes.setdefault(key, {})
        of_dtype[dtype] = of_dtype.get(dtype, 0) + size
        counts[key] = counts.get(key, 0) + 1
    revisions: dict[str, set[str]] = {}
    for repo, revision, _ in keys:
        revisions.setdefault(repo, set()).add(revision)
    models = []
    for (repo, revision, folder), of_dtype in sizes.items():
        name = repo if len(revisions[repo]) == 1 else f"{repo}@{revision}"
        models.append(
            Model(
                repo=repo,
                revision=revision,
                folder=folder,
                name=f"{name}/{folder}" if folder else name,
                nbytes=sum(of_dtype.values()),
                n_tensors=counts[repo, revision, folder],
                dtype=max(of_dtype, key=lambda dtype: of_dtype[dtype]),
            )
        )
    return tuple(sorted(models, key=lambda model: model.name))
