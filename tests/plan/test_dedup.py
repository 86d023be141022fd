"""Which extents are new, which files are taken in, and which are refused."""

import json
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from support.hubs import safetensors_bytes
from support.stores import committed_rows
from tstore.catalog import Catalog
from tstore.catalog.schema import EXTENTS, FILES, REJECTS, SOURCES, TENSORS
from tstore.errors import PlanInvariantError
from tstore.hub.snapshot import list_hub
from tstore.ids import content_hash, sha256
from tstore.objects import open_objects
from tstore.plan.dedup import BAD_SOURCES, accept
from tstore.plan.pending import find_pending
from tstore.settings import SketchSettings, TaskSettings
from tstore.sketch.scan import plan_scan, scan_shard

SKETCH, TASKS = SketchSettings(), TaskSettings()


class Scanned:
    """A scanned hub; its rows may be forged before they are accepted."""

    def __init__(self, hub, store):
        self.store = store
        with Catalog(open_objects(str(store))).connect() as connection:
            pending = find_pending(list_hub(str(hub)), connection)
        self.occurrences = pending.occurrences
        (shard,) = plan_scan(pending.sources, SKETCH, TASKS)
        tables = scan_shard(shard, SKETCH, TASKS)
        self.sources, self.extents = (tables[n].to_pylist() for n in ("sources", "extents"))

    def of(self, path):
        """Extents of the file whose path ends like this."""
        return [row for row in self.extents if row["source"].endswith(path)]

    def accept(self, *bad):
        with Catalog(open_objects(str(self.store))).connect() as connection:
            connection.register("scanned_sources", pa.Table.from_pylist(self.sources, SOURCES))
            connection.register("scanned_extents", pa.Table.from_pylist(self.extents, EXTENTS))
            tables = [pa.Table.from_pylist([row], BAD_SOURCES) for row in bad]
            accepted = accept(connection, self.occurrences, tables)
            schemas = {"files": FILES, "tensors": TENSORS, "rejects": REJECTS}
            rows = {n: getattr(accepted, n).to_arrow_table().cast(s) for n, s in schemas.items()}
            return SimpleNamespace(unique=accepted.unique.to_arrow_table(), **rows)


def bytes_of(unique):
    return {row["tensor_id"]: row["nbytes"] for row in unique.to_pylist()}


def paths(rows):
    return [(row["repo"], row["path"]) for row in rows.to_pylist()]


def model(*tensors):
    return safetensors_bytes({f"t{n}": tensor for n, tensor in enumerate(tensors)})


@pytest.fixture
def hub(tmp_path):
    return tmp_path / "hub"


@pytest.fixture
def scan(hub, tmp_path):
    """Write these files (by repo/path) and scan them."""

    def write_and_scan(store=tmp_path / "store", **files):
        for name, content in files.items():
            path = hub / name.replace("__", "/") / "model.safetensors"
            path.parent.mkdir(parents=True)
            path.write_bytes(content)
        return Scanned(hub, store)

    return write_and_scan


A = ("F32", np.arange(12, dtype=np.float32))
B = ("F32", np.arange(12, 24, dtype=np.float32))
C = ("F32", np.arange(24, 36, dtype=np.float32))


def tensor_ids(unique):
    return [t for t in unique["tensor_id"].to_pylist() if ":OPAQUE[" not in t]


def test_a_tensor_in_several_files_is_stored_once(scan):
    scanned = scan(a__one=model(A, B), b__two=model(B, C, A), c__three=model(A, B))
    accepted = scanned.accept()
    ids = [f"{content_hash(t[1].tobytes())}:F32[12]" for t in (A, B, C)]
    assert tensor_ids(accepted.unique) == ids, "in order of arrival"
    places = {row["tensor_id"]: row["locations"] for row in accepted.unique.to_pylist()}
    found = [place["source"].split("/")[-2] for place in places[ids[0]]]
    assert found == ["one", "two", "three"]
    headers = {row["sha256"]: row for row in scanned.extents if row["dtype"] == "OPAQUE"}
    assert len(accepted.unique) == 3 + len(headers) == 5, "equal headers are stored once too"
    assert paths(accepted.files) == [
        (repo, "model.safetensors") for repo in ("a/one", "b/two", "c/three")
    ]
    assert accepted.tensors.num_rows == 7
    assert accepted.rejects.num_rows == 0


def test_a_tensor_twice_in_one_file(scan):
    accepted = scan(a__one=model(A, A)).accept()
    (tensor_id,) = tensor_ids(accepted.unique)
    (row,) = [r for r in accepted.unique.to_pylist() if r["tensor_id"] == tensor_id]
    assert [p["start"] for p in row["locations"]] == sorted(p["start"] for p in row["locations"])
    assert len(row["locations"]) == 2
    (file,) = accepted.files.to_pylist()
    assert [e["tensor_id"] for e in file["layout"]][1:] == [tensor_id] * 2


def test_dtype_and_shape_are_part_of_the_identity(scan):
    zeros = [
        ("U8", np.zeros(8, np.uint8)),
        ("U8", np.zeros((2, 4), np.uint8)),
        ("I8", np.zeros(8, np.int8)),
        ("F32", np.zeros(2, np.float32)),
        ("F32", np.zeros((2, 1), np.float32)),
        ("BF16", np.zeros(4, np.uint16)),
        ("U8", np.zeros(8, np.uint8)),
    ]
    unique = scan(a__one=model(*zeros)).accept().unique
    digest = content_hash(bytes(8))
    kinds = ["U8[8]", "U8[2,4]", "I8[8]", "F32[2]", "F32[2,1]", "BF16[4]"]
    assert tensor_ids(unique) == [f"{digest}:{kind}" for kind in kinds]


def test_layouts_tile_their_files(scan):
    accepted = scan(a__one=model(A, ("F32", np.empty((0, 3), np.float32)), B)).accept()
    (file,) = accepted.files.to_pylist()
    assert sum(extent["nbytes"] for extent in file["layout"]) == file["nbytes"]
    assert all(extent["nbytes"] for extent in file["layout"])
    assert accepted.tensors["name"].to_pylist() == ["t0", "t1", "t2"], "empty tensors are listed"
    assert 0 not in bytes_of(accepted.unique).values(), "and need no blob"


def test_what_the_store_holds_is_not_new(small_store, scan):
    stored = committed_rows(small_store)["tensors"].to_pylist()[0]
    scanned = scan(small_store, a__one=model(A, B))
    (extent,) = [row for row in scanned.of("one/model.safetensors") if row["name"] == "t0"]
    blobs = committed_rows(small_store)["blobs"].to_pylist()
    (blob,) = [row for row in blobs if row["tensor_id"] == stored["tensor_id"]]
    extent.update(tensor_id=blob["tensor_id"], sha256=blob["sha256"])
    accepted = scanned.accept()
    assert tensor_ids(accepted.unique) == [f"{content_hash(B[1].tobytes())}:F32[12]"]
    assert blob["tensor_id"] in [e["tensor_id"] for e in accepted.files["layout"].to_pylist()[0]]


@pytest.mark.parametrize("digit", "0f")
def test_a_collision_rejects_only_the_later_source(scan, digit):
    scanned = scan(a__one=model(A, B), b__two=model(C), c__three=model(A, B))
    (victim,) = [row for row in scanned.of("one/model.safetensors") if row["name"] == "t0"]
    (forged,) = [row for row in scanned.of("two/model.safetensors") if row["name"] == "t0"]
    forged.update(tensor_id=victim["tensor_id"], sha256=digit * 64)
    accepted = scanned.accept()
    assert [repo for repo, _ in paths(accepted.files)] == ["a/one", "c/three"]
    assert {row["repo"] for row in accepted.tensors.to_pylist()} == {"a/one", "c/three"}
    (reject,) = accepted.rejects.to_pylist()
    assert (reject["repo"], reject["reason"]) == ("b/two", "IdentityCollisionError")
    assert not reject["stored"]
    assert forged["sha256"] in reject["message"]
    kept = {row["tensor_id"]: row["sha256"] for row in accepted.unique.to_pylist()}
    assert kept[victim["tensor_id"]] == victim["sha256"]
    for row in accepted.unique.to_pylist():
        assert not any("/two/" in place["source"] for place in row["locations"])


def test_a_collision_with_a_stored_tensor_rejects_the_new_source(small_store, scan):
    blob = committed_rows(small_store)["blobs"].to_pylist()[0]
    scanned = scan(small_store, a__one=model(A), b__two=model(B))
    scanned.of("one/model.safetensors")[-1]["tensor_id"] = blob["tensor_id"]
    accepted = scanned.accept()
    assert [repo for repo, _ in paths(accepted.files)] == ["b/two"]
    (reject,) = accepted.rejects.to_pylist()
    assert (reject["repo"], reject["reason"]) == ("a/one", "IdentityCollisionError")
    assert blob["sha256"] in reject["message"]


def test_an_unreadable_source_is_rejected_and_the_others_stay(scan):
    scanned = scan(a__one=model(A, B), b__two=model(A, C))
    (source,) = [row for row in scanned.sources if "/one/" in row["source"]]
    source.update(readable=False, reason="SourceUnreadableError", message="no", sha256=None)
    scanned.extents = scanned.of("two/model.safetensors")
    accepted = scanned.accept()
    assert [repo for repo, _ in paths(accepted.files)] == ["b/two"]
    (reject,) = accepted.rejects.to_pylist()
    assert (reject["repo"], reject["reason"], reject["message"], reject["stored"]) == (
        "a/one",
        "SourceUnreadableError",
        "no",
        False,
    )


def test_one_unreadable_part_makes_the_whole_source_unusable(scan):
    scanned = scan(a__one=model(A, B), b__two=model(C))
    (source,) = [row for row in scanned.sources if "/one/" in row["source"]]
    changed = {"readable": False, "reason": "SourceChangedError", "message": "m", "sha256": None}
    scanned.sources.append({**source, **changed})
    accepted = scanned.accept()
    assert [repo for repo, _ in paths(accepted.files)] == ["b/two"]
    assert paths(accepted.rejects) == [("a/one", "model.safetensors")]


def test_a_source_found_bad_later_gives_its_tensors_to_the_others(scan):
    scanned = scan(a__one=model(A, B), b__two=model(A, C))
    bad = scanned.of("one/model.safetensors")[0]["source"]
    row = {"source": bad, "reason": "SourceChangedError", "message": "changed"}
    accepted = scanned.accept(row, row)
    assert [repo for repo, _ in paths(accepted.files)] == ["b/two"]
    assert paths(accepted.rejects) == [("a/one", "model.safetensors")]
    assert tensor_ids(accepted.unique) == [
        f"{content_hash(t[1].tobytes())}:F32[12]" for t in (A, C)
    ]


def test_a_file_that_does_not_parse_is_taken_in_and_told(scan):
    data = model(A)[:-1]
    accepted = scan(a__one=data).accept()
    (file,) = accepted.files.to_pylist()
    assert file["sha256"] == sha256(data)
    assert [extent["nbytes"] for extent in file["layout"]] == [len(data)]
    (reject,) = accepted.rejects.to_pylist()
    assert reject["stored"]
    assert reject["reason"] == "OffsetRangeError"


def test_a_source_that_was_not_scanned_stops_the_run(scan):
    scanned = scan(a__one=model(A), b__two=model(B))
    scanned.sources = [row for row in scanned.sources if "/two/" not in row["source"]]
    with pytest.raises(PlanInvariantError, match=r"two/model\.safetensors"):
        scanned.accept()


def test_a_source_without_its_digest_stops_the_run(scan):
    scanned = scan(a__one=model(A))
    scanned.sources[0]["sha256"] = None
    with pytest.raises(PlanInvariantError, match=r"one/model\.safetensors"):
        scanned.accept()


def test_the_order_of_the_scanned_rows_does_not_matter(scan):
    scanned = scan(a__one=model(A, B), b__two=model(C, A), c__three=model(B))
    first = scanned.accept()
    scanned.extents.reverse()
    scanned.sources.reverse()
    second = scanned.accept()
    assert first.unique == second.unique
    for name in ("files", "tensors"):
        one, two = (
            sorted(json.dumps(row) for row in getattr(accepted, name).to_pylist())
            for accepted in (first, second)
        )
        assert one == two
