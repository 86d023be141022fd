-- Views over the catalog of a tstore store, for DuckDB 1.4 or newer.
--
--     SET VARIABLE store = '/path/to/store';
--     .read analytics/views.sql
--
-- They show the runs that were committed when this file was read; read it again for later ones.
-- Everything made here is temporary. Sizes are bytes, ratios stored/raw. What the reports mean and
-- how families are found: analytics/README.md.

-- A store path may hold the characters of a glob pattern.
SET VARIABLE store_root = regexp_replace(
    CAST(coalesce(
        getvariable('store'),
        error('expected SET VARIABLE store = ''/path/to/store'' first, found no such variable')
    ) AS VARCHAR),
    '([*?\[])', '[\1]', 'g'
);

CREATE OR REPLACE TEMP TABLE runs AS
SELECT run_id AS run, kind, CAST(committed_at AS TIMESTAMP) AS committed_at, tool_version,
       CASE WHEN schema_version = 4 THEN schema_version
            ELSE error(concat('expected catalog schema 4, found ', schema_version, ' in run ',
                              run_id, '; use the views of tstore ', tool_version))
       END AS schema_version,
       options, counts, tables, merged
FROM read_json(
    getvariable('store_root') || '/catalog/runs/*.json',
    columns = {
        run_id: 'VARCHAR', kind: 'VARCHAR', committed_at: 'VARCHAR', tool_version: 'VARCHAR',
        schema_version: 'BIGINT', options: 'JSON', counts: 'JSON',
        tables: 'MAP(VARCHAR, STRUCT(key VARCHAR, rows BIGINT, nbytes BIGINT, sha256 VARCHAR)[])',
        merged: 'VARCHAR[]'
    }
)
WHERE kind <> 'barred'   -- the place of a run that its job lost the right to commit
ORDER BY run;

-- ---- the tables -----------------------------------------------------------------------------

-- The markers name every part, so nothing uncommitted is read and nothing lost goes unnoticed.
-- Rows of parts that were merged lie in parts of a later run.
SET VARIABLE store_parts = (
    SELECT map_from_entries(list((name, files)))
    FROM (
        SELECT name, list(getvariable('store_root') || '/' || part.key ORDER BY part.key) AS files
        FROM (
            SELECT entry.key AS name, unnest(entry.value) AS part
            FROM (SELECT unnest(map_entries(tables)) AS entry FROM runs)
        )
        WHERE part.key NOT IN (SELECT unnest(merged) FROM runs)
        GROUP BY name
    )
);

-- The store itself may lie in a folder like env=prod.
CREATE OR REPLACE TEMP MACRO committed_rows(name) AS TABLE
FROM read_parquet(getvariable('store_parts')[name], hive_partitioning = false);

CREATE OR REPLACE TEMP VIEW files AS FROM committed_rows('files');
CREATE OR REPLACE TEMP VIEW tensors AS FROM committed_rows('tensors');
CREATE OR REPLACE TEMP VIEW fingerprints AS FROM committed_rows('fingerprints');
CREATE OR REPLACE TEMP VIEW pairs AS FROM committed_rows('pairs');
CREATE OR REPLACE TEMP VIEW plans AS FROM committed_rows('plans');
CREATE OR REPLACE TEMP VIEW blobs AS FROM committed_rows('blobs');
CREATE OR REPLACE TEMP VIEW rejects AS FROM committed_rows('rejects');
CREATE OR REPLACE TEMP VIEW savings AS FROM committed_rows('savings');
CREATE OR REPLACE TEMP VIEW removals AS FROM committed_rows('removals');
CREATE OR REPLACE TEMP VIEW dropped_packs AS FROM committed_rows('dropped_packs');

-- Revisions that are removed; a later entry may take that back.
CREATE OR REPLACE TEMP VIEW removed AS
FROM (FROM removals QUALIFY row_number() OVER (PARTITION BY repo, revision ORDER BY run DESC) = 1)
WHERE removed;

-- A run that touches a revision lists all of its files, so the newest such run counts.
CREATE OR REPLACE TEMP VIEW current_files AS
FROM files AS f
WHERE NOT EXISTS (
    FROM removed AS r WHERE r.repo = f.repo AND r.revision = f.revision AND r.run > f.run
)
QUALIFY run = max(run) OVER (PARTITION BY repo, revision);

-- A tensor may have been encoded again by a later run, which then counts, also once its pack is given
-- up.
CREATE OR REPLACE TEMP VIEW current_blobs AS
FROM (
    FROM blobs
    QUALIFY row_number() OVER (PARTITION BY tensor_id ORDER BY run DESC, pack, "offset") = 1
)
WHERE pack NOT IN (SELECT pack FROM dropped_packs);

-- ---- families -------------------------------------------------------------------------------

-- Where the total tensor bytes of each repository come from: the repository, itself or another,
-- that first brought the tensor or, of a delta, its base.
CREATE OR REPLACE TEMP VIEW providers AS
WITH held AS (SELECT DISTINCT repo, tensor_id, nbytes FROM tensors WHERE nbytes > 0),
origin AS (SELECT tensor_id, first(repo ORDER BY run, repo) AS repo FROM tensors GROUP BY tensor_id)
SELECT held.repo, origin.repo AS provider, CAST(sum(held.nbytes) AS BIGINT) AS nbytes,
       CAST(sum(sum(held.nbytes)) OVER (PARTITION BY held.repo) AS BIGINT) AS total
FROM held
JOIN current_blobs AS blob USING (tensor_id)
JOIN origin ON origin.tensor_id = coalesce(blob.base_id, held.tensor_id)
GROUP BY held.repo, origin.repo;

-- Links only lead to a repository that gives more, so they never form a circle.
CREATE OR REPLACE TEMP VIEW families AS
WITH RECURSIVE given AS (
    SELECT provider AS repo, sum(nbytes) AS nbytes
    FROM providers WHERE provider <> repo GROUP BY provider
),
ranked AS (
    SELECT repo, row_number() OVER (ORDER BY coalesce(given.nbytes, 0) DESC, repo) AS place
    FROM (SELECT DISTINCT repo FROM files) LEFT JOIN given USING (repo)
),
link AS (
    SELECT p.repo, first(p.provider ORDER BY p.nbytes DESC, giver.place) AS parent,
           sum(p.nbytes) / any_value(p.total) AS share
    FROM providers AS p
    JOIN ranked AS child ON child.repo = p.repo
    JOIN ranked AS giver ON giver.repo = p.provider
    WHERE giver.place < child.place
    GROUP BY p.repo HAVING 4 * sum(p.nbytes) >= any_value(p.total)
),
walk AS (
    SELECT repo, repo AS family, 0 AS steps FROM ranked
    UNION ALL
    SELECT walk.repo, link.parent, steps + 1 FROM walk JOIN link ON link.repo = walk.family
)
SELECT repo, arg_max(walk.family, steps) AS family, any_value(link.parent) AS parent,
       any_value(link.share) AS share
FROM walk LEFT JOIN link USING (repo)
GROUP BY repo
ORDER BY family, repo;

-- ---- savings --------------------------------------------------------------------------------

-- bytes_in - saved_by_dedup - saved_by_standalone - saved_by_delta = bytes_stored, row by row.
CREATE OR REPLACE TEMP VIEW savings_split AS
SELECT *, bytes_in - bytes_after_dedup AS saved_by_dedup,
       CASE WHEN role = 'delta' THEN 0 ELSE bytes_after_dedup - bytes_stored END
           AS saved_by_standalone,
       CASE WHEN role = 'delta' THEN bytes_after_dedup - bytes_stored ELSE 0 END AS saved_by_delta
FROM savings;

-- Pack files add their headers to the blobs.
CREATE OR REPLACE TEMP VIEW savings_by_run AS
SELECT run, CAST(coalesce(sum(COLUMNS('(n_extents|bytes_.*|saved_.*)')), 0) AS BIGINT) AS '\1',
       sum(bytes_stored) / nullif(sum(bytes_in), 0) AS ratio,
       any_value(CAST(counts->>'bytes_stored' AS BIGINT)) AS bytes_packs,
       any_value(CAST(counts->>'bytes_catalog' AS BIGINT)) AS bytes_catalog
FROM runs LEFT JOIN savings_split USING (run)
GROUP BY run ORDER BY run;

-- A file that was taken in twice is twice in bytes_in, so the ratio of the whole store to the hub
-- as it now stands, ratio_on_disk, starts from bytes_current.
CREATE OR REPLACE TEMP VIEW savings_total AS
SELECT count(*) AS n_runs, CAST(sum(COLUMNS('(n_extents|bytes_.*|saved_.*)')) AS BIGINT) AS '\1',
       sum(bytes_stored) / nullif(sum(bytes_in), 0) AS ratio,
       any_value(hub.nbytes) AS bytes_current,
       sum(bytes_packs + bytes_catalog) / nullif(any_value(hub.nbytes), 0) AS ratio_on_disk
FROM savings_by_run,
     (SELECT CAST(coalesce(sum(nbytes), 0) AS BIGINT) AS nbytes FROM current_files) AS hub;

CREATE OR REPLACE TEMP VIEW savings_by_repository AS
SELECT repo, CAST(sum(COLUMNS('(n_extents|bytes_.*|saved_.*)')) AS BIGINT) AS '\1',
       sum(bytes_stored) / nullif(sum(bytes_in), 0) AS ratio
FROM savings_split GROUP BY repo ORDER BY bytes_in DESC, repo;

CREATE OR REPLACE TEMP VIEW savings_by_family AS
SELECT family, count(DISTINCT repo) AS n_repositories,
       CAST(sum(COLUMNS('(n_extents|bytes_.*|saved_.*)')) AS BIGINT) AS '\1',
       sum(bytes_stored) / nullif(sum(bytes_in), 0) AS ratio
FROM savings_split JOIN families USING (repo)
GROUP BY family ORDER BY bytes_in DESC, family;

CREATE OR REPLACE TEMP VIEW savings_by_dtype AS
SELECT dtype, CAST(sum(COLUMNS('(n_extents|bytes_.*|saved_.*)')) AS BIGINT) AS '\1',
       sum(bytes_stored) / nullif(sum(bytes_in), 0) AS ratio
FROM savings_split GROUP BY dtype ORDER BY bytes_in DESC, dtype;

CREATE OR REPLACE TEMP VIEW savings_by_codec AS
SELECT codec, CAST(sum(COLUMNS('(n_extents|bytes_.*|saved_.*)')) AS BIGINT) AS '\1',
       sum(bytes_stored) / nullif(sum(bytes_in), 0) AS ratio
FROM savings_split GROUP BY codec ORDER BY bytes_in DESC, codec;

CREATE OR REPLACE TEMP VIEW savings_by_role AS
SELECT role, CAST(sum(COLUMNS('(n_extents|bytes_.*|saved_.*)')) AS BIGINT) AS '\1',
       sum(bytes_stored) / nullif(sum(bytes_in), 0) AS ratio
FROM savings_split GROUP BY role ORDER BY bytes_in DESC, role;

-- ---- how good the plan was, and what was refused ----------------------------------------------

-- By the codec that was planned; a tensor that ended with another counts with what it became.
CREATE OR REPLACE TEMP VIEW predicted_against_real AS
SELECT dtype, planned AS codec, count(*) AS n, count_if(used <> planned) AS n_other_codec,
       avg(abs(miss)) AS mae, quantile_cont(abs(miss), 0.5) AS p50,
       quantile_cont(abs(miss), 0.9) AS p90, quantile_cont(abs(miss), 0.99) AS p99,
       avg(miss) AS bias, sum(miss * raw_nbytes) / sum(raw_nbytes) AS bias_by_bytes
FROM (
    SELECT plans.dtype, plans.codec AS planned, blobs.codec AS used, raw_nbytes,
           predicted_ratio - blobs.nbytes / raw_nbytes AS miss
    FROM plans JOIN blobs USING (run, tensor_id)
    WHERE raw_nbytes > 0 AND predicted_ratio IS NOT NULL
)
GROUP BY dtype, planned ORDER BY dtype, planned;

-- The newest reject of each file, unless the file is gone or other content was taken in since.
CREATE OR REPLACE TEMP VIEW rejected AS
SELECT r.repo, r.revision, r.path, r.nbytes, r.reason, r.message, r.stored, r.run
FROM rejects AS r
LEFT JOIN files AS kept USING (run, repo, revision, path)
LEFT JOIN current_files AS c ON (c.repo, c.revision, c.path) = (r.repo, r.revision, r.path)
WHERE kept.sha256 IS NOT DISTINCT FROM c.sha256
QUALIFY row_number() OVER (PARTITION BY r.repo, r.revision, r.path ORDER BY r.run DESC, reason) = 1
ORDER BY r.repo, r.revision, r.path;
