"""The reports over a store whose numbers are known from its files and packs."""

import json
from collections import defaultdict
from itertools import product

import numpy as np
import pytest

from support.views import rows
from tstore.catalog import open_store
from tstore.ids import content_hash, make_tensor_id


def extents_of(path):
    """(dtype, shape, bytes) of a file's pieces: header and tensors, or the whole file."""
    data = path.read_bytes()
    if path.suffix != ".safetensors" or path.parent.name == "broken":
        return [("OPAQUE", (len(data),), data)] if data else []
    stop = 8 + int.from_bytes(data[:8], "little")
    pieces = [("OPAQUE", (stop,), data[:stop])]
    for name, entry in json.loads(data[8:stop]).items():
        if name != "__metadata__":
            start, end = (stop + offset for offset in entry["data_offsets"])
            pieces.append((entry["dtype"], tuple(entry["shape"]), data[start:end]))
    return pieces


def packed(store):
    """Encoded size and flags of every blob, from the packs alone."""
    blobs = {}
    for path in (store / "packs").rglob("*.safetensors"):
        data = path.read_bytes()
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        for tensor_id, flags in header.pop("__metadata__").items():
            start, stop = header[tensor_id]["data_offsets"]
            blobs[tensor_id] = (stop - start, json.loads(flags))
    return blobs


def expected_savings(hub, store):
    """Sums by repository, dtype, codec and role, first occurrences in order of the paths."""
    blobs = packed(store)
    bases = {flags["base"] for _, flags in blobs.values() if "base" in flags}
    seen, sums = set(), defaultdict(lambda: defaultdict(int))
    for path in sorted(p for p in hub.rglob("*") if p.is_file()):
        repo = path.parent.relative_to(hub).as_posix()
        for dtype, shape, data in extents_of(path):
            tensor_id = make_tensor_id(content_hash(data), dtype, shape)
            nbytes, flags = blobs[tensor_id]
            role, codec = "duplicate", "none"
            cost = {"n_extents": 1, "bytes_in": len(data)}
            if tensor_id not in seen:
                is_base = "base" if tensor_id in bases else "alone"
                whole = "opaque" if dtype == "OPAQUE" else is_base
                role, codec = "delta" if "base" in flags else whole, flags["codec"]
                kind = "delta" if role == "delta" else "standalone"
                cost |= {"bytes_after_dedup": len(data), "bytes_stored": nbytes}
                cost[f"saved_by_{kind}"] = len(data) - nbytes
            else:
                cost["saved_by_dedup"] = len(data)
            seen.add(tensor_id)
            for view in (("repository", repo), ("dtype", dtype), ("codec", codec), ("role", role)):
                for name, value in cost.items():
                    sums[view][name] += value
    return sums


def test_savings_are_those_of_the_files_and_packs(hub, store):
    expected = expected_savings(hub, store)
    views = ("repository", "repo"), ("dtype",) * 2, ("codec",) * 2, ("role",) * 2
    for (view, key), when in product(views, ("savings", "now")):  # of one run they are the same
        found = {row[key]: row for row in rows(store, f"{when}_by_{view}")}
        assert set(found) == {value for name, value in expected if name == view}
        for value, row in found.items():
            sums = expected[view, value]
            names = [n for n in row if n.startswith(("n_extents", "bytes_", "saved_"))]
            if when == "savings":
                names.remove("bytes_predicted")
            assert {name: row[name] for name in names} == {name: sums[name] for name in names}
            assert row["ratio"] == sums["bytes_stored"] / sums["bytes_in"]
    assert {"duplicate", "delta", "base", "alone", "opaque"} == {
        value for name, value in expected if name == "role"
    }


def test_totals_are_those_of_the_directories(hub, store):
    (run,) = rows(store, "savings_by_run")
    (total,) = rows(store, "savings_total")
    (now,) = rows(store, "now_total")
    files = [path for path in hub.rglob("*") if path.is_file()]
    raw = sum(path.stat().st_size for path in files)
    packs = sum(path.stat().st_size for path in (store / "packs").rglob("*.safetensors"))
    catalog = sum(path.stat().st_size for path in (store / "catalog").rglob("*.parquet"))
    assert total["bytes_in"] == run["bytes_in"] == now["bytes_in"] == now["bytes_current"] == raw
    assert total["bytes_packs"] == run["bytes_packs"] == now["bytes_packs"] == packs
    assert total["bytes_catalog"] == run["bytes_catalog"] == now["bytes_catalog"] == catalog
    assert total["bytes_stored"] == now["bytes_stored"]
    assert total["bytes_stored"] == sum(nbytes for nbytes, _ in packed(store).values())
    assert (now["n_files"], now["n_repositories"]) == (len(files), 5)
    assert (now["bytes_unreferenced"], now["bytes_hidden_bases"], run["bytes_dropped"]) == (0, 0, 0)
    assert now["ratio_on_disk"] == (packs + catalog) / raw
    for sums in (total, now):
        saved = sum(sums[f"saved_by_{how}"] for how in ("dedup", "standalone", "delta"))
        assert sums["bytes_in"] - saved == sums["bytes_stored"]


def test_runs_add_up(stores, hub, store, grown):
    first, second = rows(grown, "savings_by_run")
    assert first == rows(store, "savings_by_run")[0]
    assert first["run"] < second["run"]
    (total,) = rows(grown, "savings_total")
    for name in ("n_extents", "bytes_in", "bytes_after_dedup", "bytes_stored", "bytes_packs"):
        assert total[name] == first[name] + second[name]
    for view in ("repository", "family", "dtype", "codec", "role"):
        found = rows(grown, f"savings_by_{view}")
        assert sum(row["bytes_stored"] for row in found) == total["bytes_stored"]
    broken = (hub / "lab/broken/model.safetensors").stat().st_size
    repaired = (stores / "repaired").stat().st_size
    tuned = sum(path.stat().st_size for path in (hub / "lab/tuned").iterdir())
    assert second["bytes_in"] == repaired + tuned
    (now,) = rows(grown, "now_total")
    assert now["bytes_current"] == first["bytes_in"] - broken + second["bytes_in"]


def test_prediction_errors_match_numpy(grown):
    catalog = open_store(str(grown)).catalog()
    blobs = {
        (row["run"], row["tensor_id"]): row
        for row in catalog.dataset("blobs").to_table().to_pylist()
    }
    misses = defaultdict(list)
    for plan in catalog.dataset("plans").to_table().to_pylist():
        blob = blobs[plan["run"], plan["tensor_id"]]
        miss = plan["predicted_ratio"] - blob["nbytes"] / blob["raw_nbytes"]
        misses[plan["dtype"], plan["codec"]].append((miss, blob["raw_nbytes"]))
    found = rows(grown, "predicted_against_real")
    assert [(row["dtype"], row["codec"]) for row in found] == sorted(misses)
    for row in found:
        miss, weight = np.array(misses[row["dtype"], row["codec"]]).T
        quantiles = np.quantile(abs(miss), [0.5, 0.9, 0.99])
        assert row["n"] == miss.size
        assert row["n_other_codec"] == 0
        assert row["mae"] == pytest.approx(abs(miss).mean(), rel=1e-9)
        assert [row["p50"], row["p90"], row["p99"]] == pytest.approx(quantiles, rel=1e-9)
        assert row["bias"] == pytest.approx(miss.mean(), rel=1e-9)
        assert row["bias_by_bytes"] == pytest.approx(np.average(miss, weights=weight), rel=1e-9)


def test_a_reject_is_shown_until_the_file_is_repaired(store, grown):
    (reject,) = rows(store, "rejected")
    assert (reject["repo"], reject["path"]) == ("lab/broken", "model.safetensors")
    assert (reject["reason"], reject["stored"]) == ("OffsetRangeError", True)
    assert rows(grown, "rejected") == []
    assert len(rows(grown, "rejects")) == 1
