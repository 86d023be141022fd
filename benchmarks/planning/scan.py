"""Read a hub from disk, with tstore's own readers; sketches are kept in a folder."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.planning.hub import Hub, UniqueTensor
from tstore.hub.formats import Extent, file_extents
from tstore.hub.location import HubLocation
from tstore.hub.reader import open_source
from tstore.hub.snapshot import HubFile, list_hub
from tstore.ids import OPAQUE, content_hash, make_tensor_id
from tstore.settings import SketchSettings, TaskSettings
from tstore.sketch.statistics import plane_entropies, standalone_ratio
from tstore.sketch.tensorsketch import build

MANIFEST = "manifest.json"
_CARD = re.compile(r"^base_model:[ \t]*(?:\n\s*-[ \t]*)?[\"']?([^\s\"'\[\]]+)", re.MULTILINE)
_PROBE = np.arange(1 << 16, dtype=np.uint8)

Row = dict[str, Any]
"""What a scan says of one tensor: name, id, dtype, shape, start, nbytes, standalone, sketch."""

TASKS = TaskSettings()


def read_hub(root: Path, cache: Path, settings: SketchSettings) -> Hub:
    """Read the tensors of all models of a hub.

    Models arrive as ``manifest.json`` says, if the hub has one (``{"order": [{"model": …,
    "true_parent": …}, …]}``), then the others by name. Files that cannot be parsed are left out.

    Parameters
    ----------
    root : Path
        A directory that `tstore.hub.snapshot.list_hub` can list.
    cache : Path
        Folder of sketches; made if missing. What lies there is used while the file in the hub,
        the settings and the way of sketching are the same.
    settings : SketchSettings
    """
    files = list_hub(str(root)).files
    order = _manifest(root)
    models: dict[str, list[HubFile]] = {model: [] for model in order}
    for file in files:
        models.setdefault(_model(file), []).append(file)
    recipe = _recipe(settings)
    tensors: dict[str, UniqueTensor] = {}
    contents: dict[str, dict[str, str]] = {}
    for model, own in models.items():
        names: dict[str, str] = {}
        for file in own:
            for row in _scan(file, cache, settings, recipe):
                names[row["name"]] = row["id"]
                tensors.setdefault(row["id"], _tensor(file, row))
        if names:
            contents[model] = names
    cards = _cards(files, contents)
    parents = {model: parents for model, parents in order.items() if model in contents}
    return Hub(contents, tensors, cards, parents, settings)


def _manifest(root: Path) -> dict[str, tuple[str, ...]]:
    """Models in order of arrival, with their true parents."""
    if not (root / MANIFEST).exists():
        return {}
    entries = json.loads((root / MANIFEST).read_text())["order"]
    return {entry["model"]: _as_tuple(entry["true_parent"]) for entry in entries}


def _as_tuple(parents: str | Sequence[str] | None) -> tuple[str, ...]:
    if parents is None:
        return ()
    return (parents,) if isinstance(parents, str) else tuple(parents)


def _model(file: HubFile) -> str:
    folder, slash, _ = file.path.rpartition("/")
    return f"{file.repo}{slash}{folder}"


def _cards(files: Iterable[HubFile], models: Iterable[str]) -> dict[str, str]:
    """The first ``base_model`` in the front matter of each README, for all models below it."""
    by_repo: dict[str, str] = {}
    for file in files:
        if file.path == "README.md":
            text = Path(file.source.source).read_text(encoding="utf-8", errors="replace")
            head = text.split("\n---", 1)[0] if text.startswith("---") else ""
            if found := _CARD.search(head):
                by_repo[file.repo] = found[1]
    repos = {
        model: repo for model in models for repo in by_repo if f"{model}/".startswith(f"{repo}/")
    }
    return {model: by_repo[repo] for model, repo in repos.items()}


def _tensor(file: HubFile, row: Row) -> UniqueTensor:
    location = HubLocation(file.source, row["start"], row["nbytes"])
    return UniqueTensor(
        row["id"], row["dtype"], row["shape"], location, row["standalone"], row["sketch"]
    )


def _recipe(settings: SketchSettings) -> str:
    """Text that changes when equal tensors would get other sketches."""
    probes = [build(_PROBE, dtype, settings).tobytes() for dtype in ("U8", "BF16", "F32", "F64")]
    return json.dumps([asdict(settings), hashlib.sha256(b"".join(probes)).hexdigest()])


def _scan(file: HubFile, cache: Path, settings: SketchSettings, recipe: str) -> list[Row]:
    """Rows of the tensors of one file, from the cache if it knows the file."""
    key = json.dumps([file.source.source, file.source.tag, recipe])
    kept = cache / "sketches" / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.npy"
    if kept.exists():
        rows: list[Row] = np.load(kept, allow_pickle=True).tolist()
        return rows
    rows = []
    with open_source(file.source) as reader:
        extents, _ = file_extents(
            reader,
            file.path,
            opaque_nbytes=TASKS.opaque_extent_nbytes,
            tensor_nbytes=TASKS.tensor_extent_nbytes,
        )
        for extent in extents:
            if extent.dtype != OPAQUE and extent.nbytes:
                rows.append(_row(extent, reader.read(extent.start, extent.stop), settings))
    kept.parent.mkdir(parents=True, exist_ok=True)
    np.save(kept, np.array(rows, dtype=object), allow_pickle=True)
    return rows


def _row(
    extent: Extent, data: np.ndarray[Any, np.dtype[np.uint8]], settings: SketchSettings
) -> Row:
    sketched = extent.nbytes >= settings.min_nbytes
    return {
        "name": extent.name if extent.part is None else f"{extent.name} part {extent.part}",
        "id": make_tensor_id(content_hash(data), extent.dtype, extent.shape),
        "dtype": extent.dtype,
        "shape": extent.shape,
        "start": extent.start,
        "nbytes": extent.nbytes,
        "standalone": standalone_ratio(plane_entropies(data, extent.dtype), extent.nbytes),
        "sketch": build(data, extent.dtype, settings) if sketched else None,
    }
