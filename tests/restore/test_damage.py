"""Damaged stores, each with the verdict of verify and of restore."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.hubs import file_hashes
from support.stores import committed_rows, edit_rows, pack_file
from tstore.catalog import keys, open_store
from tstore.errors import (
    BlobDamagedError,
    BlobMissingError,
    CatalogDamagedError,
    FileMismatchError,
    TStoreError,
)
from tstore.restore.files import restore_repo
from tstore.restore.verify import verify

Row = dict[str, Any]
OTHER = "other/unrelated"


# --- damages: to objects ----------------------------------------------------------------------


def part(store: Path, table: str) -> Path:
    (path,) = (store / keys.table(table)).rglob("*.parquet")
    return path


def truncate(path: Path, nbytes: int) -> None:
    path.write_bytes(path.read_bytes()[:-nbytes])


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 16
    path.write_bytes(data)


def pack_missing(store):
    pack_file(store).unlink()


def pack_empty(store):
    pack_file(store).write_bytes(b"")


def pack_truncated(store):
    truncate(pack_file(store), 1)


def bit_flipped_in_a_blob(store):
    row = a_delta(committed_rows(store)["blobs"].to_pylist())
    flip(pack_file(store), row["offset"] + row["nbytes"] // 2)


def bit_flipped_in_the_header_of_a_pack(store):
    flip(pack_file(store), 100)


def files_part_missing(store):
    part(store, "files").unlink()


def blobs_part_truncated(store):
    truncate(part(store, "blobs"), 9)


def bit_flipped_in_the_files_part(store):
    flip(part(store, "files"), 300)


def bit_flipped_in_the_tensors_part(store):
    flip(part(store, "tensors"), 300)


# --- damages: to rows -------------------------------------------------------------------------


def a_delta(blobs: list[Row]) -> Row:
    """The last delta, which only lab/tuned needs."""
    return [row for row in blobs if row["base_id"]][-1]


def alone(blobs: list[Row]) -> Row:
    """A tensor that no delta needs."""
    bases = {row["base_id"] for row in blobs}
    return next(
        r
        for r in blobs
        if r["dtype"] == "BF16" and not r["base_id"] and r["tensor_id"] not in bases
    )


def blob_row_missing(store):
    edit_rows(store, "blobs", lambda rows: [row for row in rows if row != a_delta(rows)])


def base_row_missing(store):
    def without_base(rows):
        return [row for row in rows if row["tensor_id"] != a_delta(rows)["base_id"]]

    edit_rows(store, "blobs", without_base)


def delta_with_another_base(store):
    edit_rows(store, "blobs", lambda rows: a_delta(rows).update(base_id=alone(rows)["tensor_id"]))


def bases_in_a_circle(store):
    def close_circles(rows):
        deltas = {row["base_id"]: row["tensor_id"] for row in rows if row["base_id"]}
        for row in rows:
            row["base_id"] = row["base_id"] or deltas.get(row["tensor_id"])

    edit_rows(store, "blobs", close_circles)


def blob_of_another_tensor(store):
    place = ("pack", "offset", "nbytes", "checksum", "codec", "base_id")
    edit_rows(
        store,
        "blobs",
        lambda rows: a_delta(rows).update({name: alone(rows)[name] for name in place}),
    )


def blob_range_absurd(store):
    edit_rows(store, "blobs", lambda rows: a_delta(rows).update(nbytes=1 << 60))


def blob_range_negative(store):
    edit_rows(store, "blobs", lambda rows: a_delta(rows).update(offset=-8))


def change_file(store, **change: Callable[[Any], Any]) -> None:
    """Change columns of the row of lab/tuned/model.safetensors."""

    def change_row(rows):
        (row,) = [r for r in rows if (r["repo"], r["path"]) == ("lab/tuned", "model.safetensors")]
        row.update({name: function(row[name]) for name, function in change.items()})

    edit_rows(store, "files", change_row)


def extents_swapped(store):
    change_file(store, layout=lambda extents: [extents[0], extents[2], extents[1], *extents[3:]])


def extent_missing(store):
    change_file(store, layout=lambda extents: extents[:-1])


def extent_of_another_size(store):
    def grow(extents):
        return [*extents[:-1], {**extents[-1], "nbytes": extents[-1]["nbytes"] + 1}]

    change_file(store, layout=grow, nbytes=lambda nbytes: nbytes + 1)


def digest_of_a_file_changed(store):
    change_file(store, sha256=lambda digest: digest[::-1])


# --- verdicts ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """What is found.

    Attributes
    ----------
    damage : callable
        Damages the store at a path.
    fast, deep : str
        Pattern in the first problem that verify finds without and with reading data; empty for
        none.
    error : type or None
        What restoring lab/tuned raises.
    other : type or None
        What restoring another repository raises.
    """

    damage: Callable[[Path], None]
    fast: str
    deep: str
    error: type[TStoreError] | None
    other: type[TStoreError] | None = None


VERDICTS = [
    Verdict(pack_missing, "found no object", "found no object", BlobMissingError, BlobMissingError),
    Verdict(pack_empty, "found 0 bytes", "found 0 bytes", BlobMissingError, BlobMissingError),
    Verdict(pack_truncated, "pack .* at least .* bytes", "at least", None, BlobMissingError),
    Verdict(bit_flipped_in_a_blob, "", "pack .* SHA-256 in its name", BlobDamagedError),
    Verdict(bit_flipped_in_the_header_of_a_pack, "", "SHA-256 in its name", None),
    Verdict(
        files_part_missing,
        "files/2.*found no object",
        "found no object",
        CatalogDamagedError,
        CatalogDamagedError,
    ),
    Verdict(
        blobs_part_truncated,
        r"blobs/2.* \d+ bytes, found \d+ bytes",
        "bytes, found",
        CatalogDamagedError,
        CatalogDamagedError,
    ),
    Verdict(
        bit_flipped_in_the_files_part,
        "files/2.* SHA-256",
        "SHA-256",
        CatalogDamagedError,
        CatalogDamagedError,
    ),
    Verdict(bit_flipped_in_the_tensors_part, "", "tensors/2.* SHA-256", None),
    Verdict(blob_row_missing, "lab/tuned@main/model.* found none", "found none", BlobMissingError),
    Verdict(base_row_missing, "base .* stored standalone", "standalone", BlobMissingError),
    Verdict(delta_with_another_base, "", "expected a base whose chunk 0", BlobDamagedError),
    Verdict(bases_in_a_circle, "base .* stored standalone", "standalone", CatalogDamagedError),
    Verdict(blob_of_another_tensor, "", "lab/tuned.* to decode to SHA-256", BlobDamagedError),
    Verdict(blob_range_absurd, "pack .* at least 1152921504", "at least", BlobMissingError),
    Verdict(blob_range_negative, "", "lab/tuned.* expected a range inside", BlobMissingError),
    Verdict(extents_swapped, "", "lab/tuned.* expected SHA-256", FileMismatchError),
    Verdict(extent_missing, "expected extents of .* found", "extents of", FileMismatchError),
    Verdict(extent_of_another_size, "expected a blob of that size", "of that size", None),
    Verdict(digest_of_a_file_changed, "", "expected SHA-256", FileMismatchError),
]


@pytest.mark.parametrize("verdict", VERDICTS, ids=lambda verdict: verdict.damage.__name__)
def test_verdicts(verdict, small_hub, own_store, tmp_path):
    verdict.damage(own_store)
    store = open_store(str(own_store))
    for read_data, pattern in ((False, verdict.fast), (True, verdict.deep)):
        problems = verify(store, read_data=read_data).problems
        assert all("\n" not in problem for problem in problems)
        assert bool(problems) == bool(pattern), problems
        assert not problems or re.search(pattern, problems[0]), problems
    for repo, error in (("lab/tuned", verdict.error), (OTHER, verdict.other)):
        folder = tmp_path / "restored" / repo
        expected = file_hashes(small_hub / repo)
        if error is None:
            restore_repo(store, repo, folder)
            assert file_hashes(folder) == expected
        else:
            with pytest.raises(error):
                restore_repo(store, repo, folder)
            assert file_hashes(folder).items() < expected.items(), "no wrong file has a name"


def test_a_sound_store(small_store):
    for read_data in (False, True):
        report = verify(open_store(str(small_store)), read_data=read_data)
        assert (report.problems, report.runs, report.files) == ([], 1, 14)
        assert (report.blobs, report.packs) == (31, 1)


def test_verify_goes_on_after_a_problem(own_store):
    seen = []
    bit_flipped_in_a_blob(own_store)
    report = verify(open_store(str(own_store)), read_data=True, on_file=seen.append)
    assert len(seen) == report.files == 14
    damaged = [problem for problem in report.problems if problem.startswith("lab/")]
    assert len(damaged) == 1
    assert damaged[0].startswith("lab/tuned@main/model.safetensors: ")
