"""All numbers of the report, bounded however large the store is."""

from __future__ import annotations

import json
from collections import defaultdict
from datetime import UTC, datetime
from typing import Any

import duckdb

import tstore
from reporting.heat import heat_maps
from store_views import Row, open_views, rows
from tstore.catalog import Store

GROWTH_POINTS = 1500
FAMILIES = 16
GRAPHS = 12
GRAPH_NODES = 40
SCATTER_POINTS = 2000
RUNS = 60
REPOSITORIES = 5000
REJECTS = 200
SPLITS = "layer", "role", "dtype", "codec"

_SUMS = "n_extents, bytes_in, bytes_stored, saved_by_dedup, saved_by_standalone, saved_by_delta"
_FAMILIES = f"""
SELECT f.family, n_repositories, {_SUMS}, f.ratio, spread.* EXCLUDE (family)
FROM now_by_family AS f
JOIN (
    SELECT family, quantile_cont(r.ratio, [0, 0.25, 0.5, 0.75, 1]) AS quantiles
    FROM now_by_repository AS r JOIN families USING (repo) GROUP BY family
) AS spread USING (family)
ORDER BY bytes_in DESC, f.family LIMIT {FAMILIES}
"""
_GROWTH = f"""
SELECT place, run, committed_at, repo, total_in, total_after_dedup, total_stored
FROM growth, (SELECT count(*) AS n FROM growth) AS every
WHERE place % CAST(ceil(n / {GROWTH_POINTS}) AS BIGINT) = 0 OR place IN (1, n)
ORDER BY place
"""
_SCATTER = f"""
SELECT dtype, planned, used, predicted, reached, raw_nbytes
FROM predictions WHERE raw_nbytes >= 4096
ORDER BY md5(tensor_id), run LIMIT {SCATTER_POINTS}
"""
_REPOSITORIES = f"""
SELECT n.repo, family, place, strftime(committed_at, '%Y-%m-%d') AS came, n_extents, n.bytes_in,
       n.bytes_stored, n.saved_by_dedup, n.saved_by_delta, n.ratio, amplification_once
FROM (SELECT repo, {_SUMS}, ratio FROM now_by_repository) AS n
JOIN families USING (repo) JOIN arrivals USING (repo) JOIN runs ON runs.run = arrivals.run
JOIN (SELECT repo, amplification_once FROM read_amplification) USING (repo)
ORDER BY n.bytes_in DESC, n.repo LIMIT {REPOSITORIES}
"""
_READING = """
SELECT CAST(coalesce(sum(bytes_restored), 0) AS BIGINT) AS bytes_restored,
       CAST(coalesce(sum(blobs_once), 0) AS BIGINT) AS blobs_once,
       CAST(coalesce(sum(bytes_once), 0) AS BIGINT) AS bytes_once,
       sum(blobs_read) / sum(n_extents) AS blobs_per_extent
FROM read_amplification
"""
_SPACE = """
SELECT count(*) AS n_packs, count_if(dead_bytes > 0) AS n_with_dead,
       CAST(coalesce(sum(live_bytes), 0) AS BIGINT) AS live_bytes,
       CAST(coalesce(sum(dead_bytes), 0) AS BIGINT) AS dead_bytes,
       CAST(coalesce(sum(header_bytes), 0) AS BIGINT) AS header_bytes
FROM packs WHERE dropped_by IS NULL
"""
_COUNTS = """
SELECT (SELECT count(*) FROM families) AS n_repositories_ever,
       (SELECT count(DISTINCT family) FROM families) AS n_families,
       (SELECT count(*) FROM stored WHERE base_id IS NOT NULL) AS n_deltas,
       (SELECT count(*) FROM stored WHERE dtype <> 'OPAQUE') AS n_tensors,
       (SELECT count(*) FROM base_fanout) AS n_bases
"""
_NODES = """
SELECT f.family, f.repo, f.parent, n.bytes_in, n.bytes_stored, n.ratio
FROM families AS f JOIN (SELECT repo, bytes_in, bytes_stored, ratio FROM now_by_repository) AS n
USING (repo)
WHERE f.family = ? ORDER BY f.repo <> f.family, n.bytes_in DESC, f.repo LIMIT ?
"""


def collect(store: Store) -> dict[str, Any]:
    """Numbers of the report, ready for JSON: plain values, times as text.

    Raises
    ------
    StoreNotFoundError, StoreFormatError, CatalogDamagedError, ObjectStoreUnavailableError
        See `store_views.open_views`.
    """
    with open_views(store) as connection:
        (total,) = rows(connection, "now_total")
        (counts,) = rows(connection, _COUNTS)
        (reading,) = rows(connection, _READING)
        (space,) = rows(connection, _SPACE)
        return {
            "store": store.objects.uri,
            "version": tstore.__version__,
            "made_at": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            "total": total,
            "counts": counts,
            "reading": reading,
            "space": space,
            "growth": _plain(rows(connection, _GROWTH)),
            "splits": {name: rows(connection, f"now_by_{name}") for name in SPLITS},
            "families": rows(connection, _FAMILIES),
            "graphs": _graphs(connection),
            "heat": heat_maps(store, connection),
            "predictions": rows(connection, _SCATTER),
            "errors": rows(connection, "predicted_against_real"),
            "fanout": rows(connection, "fanout_histogram"),
            "runs": _runs(connection),
            "repositories": rows(connection, _REPOSITORIES),
            "rejected": rows(connection, f"FROM rejected LIMIT {REJECTS}"),
            "rejected_by_reason": rows(connection, "rejected_by_reason"),
        }


def _plain(found: list[Row]) -> list[Row]:
    return [{**row, "committed_at": row["committed_at"].isoformat(" ", "seconds")} for row in found]


def _graphs(connection: duckdb.DuckDBPyConnection) -> list[Row]:
    """Of the families with most deltas: their largest repositories, and who is whose delta."""
    edges = defaultdict(list)
    for edge in rows(connection, "FROM base_graph WHERE repo <> base_repo"):
        edges[edge["family"]].append(edge)
    ranked = sorted(edges, key=lambda family: (-sum(e["bytes_in"] for e in edges[family]), family))
    graphs = []
    for family in ranked[:GRAPHS]:
        nodes = rows(connection, _NODES, family, GRAPH_NODES)
        shown = {node["repo"] for node in nodes}
        graphs.append(
            {
                "family": family,
                "n_repositories": rows(
                    connection, "SELECT count(*) AS n FROM families WHERE family = ?", family
                )[0]["n"],
                "nodes": nodes,
                "edges": [e for e in edges[family] if {e["repo"], e["base_repo"]} <= shown],
            }
        )
    return graphs


def _runs(connection: duckdb.DuckDBPyConnection) -> list[Row]:
    """The last runs: what they took in and wrote, and where their time went."""
    found = rows(
        connection,
        "SELECT s.run, s.kind, s.bytes_in, s.bytes_stored, s.bytes_packs, s.bytes_dropped, "
        "committed_at, counts FROM savings_by_run AS s JOIN runs USING (run) "
        f"ORDER BY run DESC LIMIT {RUNS}",
    )
    runs = []
    for row in reversed(_plain(found)):
        stages = json.loads(row.pop("counts")).get("stages", {})
        runs.append(
            {
                **row,
                "seconds": {name: stage["seconds"] for name, stage in stages.items()},
                "core_seconds": sum(stage["task_seconds"] for stage in stages.values()),
            }
        )
    return runs
