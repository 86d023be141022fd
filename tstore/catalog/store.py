"""A store: an object store with its ``store.json``."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

import tstore
from tstore.catalog import keys
from tstore.catalog.catalog import Catalog
from tstore.errors import (
    ObjectExistsError,
    ObjectNotFoundError,
    StoreFormatError,
    StoreNotFoundError,
)
from tstore.objects import PROBE_PREFIX, ObjectStore, open_objects
from tstore.settings import SketchSettings

FORMAT_VERSION = 2


@dataclass(frozen=True)
class Store:
    """An opened store.

    Attributes
    ----------
    objects : ObjectStore
        Where everything lies.
    sketch : SketchSettings
        Sketch parameters, fixed for the life of the store.
    """

    objects: ObjectStore
    sketch: SketchSettings

    def catalog(self, *, until: str | None = None) -> Catalog:
        """The runs committed so far (up to run `until`)."""
        return Catalog(self.objects, until=until)


def open_store(uri: str) -> Store:
    """Open an existing store.

    Raises
    ------
    StoreNotFoundError
        No ``store.json`` lies there.
    StoreFormatError
        A newer format, or not the JSON that was expected.
    """
    objects = open_objects(uri)
    try:
        data = objects.get(keys.STORE)
    except ObjectNotFoundError as error:
        raise StoreNotFoundError(
            f"expected a tstore store at {uri}, found no {keys.STORE}; ingest a hub to make one",
            uri=uri,
        ) from error
    return Store(objects, _parse(data, uri))


def open_or_create(uri: str, sketch: SketchSettings) -> Store:
    """Open the store at `uri`, or make one there with these sketch parameters.

    Raises
    ------
    StoreFormatError
        Something else lies there already.
    ConditionalPutUnsupportedError
        Two jobs could overwrite one another there.
    """
    objects = open_objects(uri)
    try:
        return open_store(uri)
    except StoreNotFoundError:
        keys_found = (info.key for info in objects.list(""))
        found = next((key for key in keys_found if not key.startswith(PROBE_PREFIX)), None)
    if found is not None:
        return _made_meanwhile(uri, found)
    objects.probe()
    config = {
        "format_version": FORMAT_VERSION,
        "tool_version": tstore.__version__,
        "sketch": asdict(sketch),
    }
    try:
        objects.put_new(keys.STORE, [json.dumps(config, indent=1).encode()])
    except ObjectExistsError:  # another job made it in between: its parameters count
        return open_store(uri)
    return Store(objects, sketch)


def _made_meanwhile(uri: str, found: str) -> Store:
    """The store that another job made since we looked, if `found` belongs to one."""
    try:
        return open_store(uri)
    except StoreNotFoundError as error:
        raise StoreFormatError(
            f"expected a store or an empty place at {uri}, found {found}; "
            "choose an empty directory for a new store",
            uri=uri,
        ) from error


def _parse(data: bytes, uri: str) -> SketchSettings:
    try:
        config = json.loads(data)
        version = config["format_version"]
        if version != FORMAT_VERSION:
            raise StoreFormatError(
                f"expected store format {FORMAT_VERSION}, found {version} at {uri}; "
                f"use tstore {config.get('tool_version')}, which made it",
                uri=uri,
            )
        return SketchSettings(**config["sketch"])
    except (ValueError, KeyError, TypeError) as error:
        raise StoreFormatError(
            f"expected the {keys.STORE} of a store at {uri}, found {data[:80]!r}", uri=uri
        ) from error
