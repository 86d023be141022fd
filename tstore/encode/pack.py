"""A pack: many blobs in one safetensors file (TStore, §4.1), named by its SHA-256.

Each blob is an entry of dtype U8 under its tensor id; ``__metadata__`` holds, per tensor id, a
JSON object of what a reader must know to decode it, and the generation. Any safetensors reader opens a pack.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import tstore_codecs
from tstore.activity import spending
from tstore.catalog import keys
from tstore.errors import ObjectExistsError
from tstore.ids import sha256
from tstore.objects import ObjectStore

GENERATION = "generation"
"""Entry of the metadata that is no tensor id."""


@dataclass(frozen=True)
class PackEntry:
    """One blob to pack.

    Attributes
    ----------
    tensor_id : str
        Name of the entry.
    blob : bytes
        Encoded bytes.
    codec : str
        Codec that encoded it.
    base_id : str or None
        Tensor that decoding needs.
    checksum : str
        xxh3_128 of the blob, hex.
    """

    tensor_id: str
    blob: bytes
    codec: str
    base_id: str | None
    checksum: str

    def flags(self) -> str:
        """What the pack's metadata says of the blob; dtype and shape are in the tensor id."""
        flags: dict[str, object] = {
            "codec": self.codec,
            "format": tstore_codecs.FORMAT_VERSION,
            "checksum": self.checksum,
        }
        if self.base_id is not None:
            flags["base"] = self.base_id
        return json.dumps(flags, separators=(",", ":"))


@dataclass(frozen=True)
class Pack:
    """A pack, ready to be written.

    Attributes
    ----------
    pack_id : str
        SHA-256 of the file.
    parts : list of bytes
        The file, in pieces.
    offsets : list of int
        First byte of each entry in the file.
    """

    pack_id: str
    parts: list[bytes]
    offsets: list[int]


def build_pack(entries: Sequence[PackEntry], generation: str = "") -> Pack:
    """Lay blobs one after the other behind a safetensors header.

    Parameters
    ----------
    entries : sequence of PackEntry
    generation : str
        Packs of different generations have different names, whatever they hold.
    """
    metadata = {entry.tensor_id: entry.flags() for entry in entries}
    if generation:
        metadata[GENERATION] = generation
    header: dict[str, object] = {"__metadata__": metadata}
    position = 0
    for entry in entries:
        stop = position + len(entry.blob)
        header[entry.tensor_id] = {
            "dtype": "U8",
            "shape": [len(entry.blob)],
            "data_offsets": [position, stop],
        }
        position = stop
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    parts = [len(text).to_bytes(8, "little") + text, *(entry.blob for entry in entries)]
    offsets, offset = [], len(parts[0])
    for entry in entries:
        offsets.append(offset)
        offset += len(entry.blob)
    return Pack(sha256(*parts), parts, offsets)


def publish_entries(
    objects: ObjectStore,
    entries: Sequence[PackEntry],
    rows: Sequence[dict[str, object]],
    generation: str,
) -> None:
    """Publish a pack of these blobs, and say in their rows ``blobs`` where they lie."""
    if not entries:
        return
    with spending("write", sum(len(entry.blob) for entry in entries)):
        pack = build_pack(entries, generation)
        _publish(objects, pack)
    for row, offset in zip(rows, pack.offsets, strict=True):
        row.update(pack=pack.pack_id, offset=offset)


def _publish(objects: ObjectStore, pack: Pack) -> None:
    """Write a pack. One that lies there from an earlier try must be the same, or is replaced."""
    key = keys.pack(pack.pack_id)
    try:
        objects.put_new(key, pack.parts)
    except ObjectExistsError:
        if sha256(objects.get(key)) != pack.pack_id:
            objects.put(key, pack.parts)
