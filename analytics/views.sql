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
    coalesce(getvariable('store'), error('SET VARIABLE store = ''/path/to/store''; first')),
    '([*?\[])', '[\1]', 'g'
);

CREATE OR REPLACE TEMP TABLE runs AS
SELECT run_id AS run, kind, CAST(committed_at AS TIMESTAMP) AS committed_at, tool_version,
       CASE WHEN schema_version = 1 THEN schema_version
            ELSE error('expected catalog schema 1, found ' || schema_version || ' in run '
                       || run_id || '; use the views of tstore ' || tool_version) END
           AS schema_version,
       options, counts, tables
FROM read_json(
    getvariable('store_root') || '/catalog/runs/*.json',
    columns = {
        run_id: 'VARCHAR', kind: 'VARCHAR', committed_at: 'VARCHAR', tool_version: 'VARCHAR',
        schema_version: 'BIGINT', options: 'JSON', counts: 'JSON',
        tables: 'MAP(VARCHAR, STRUCT(key VARCHAR, rows BIGINT, nbytes BIGINT)[])'
    }
)
ORDER BY run;

-- ---- the tables -----------------------------------------------------------------------------

-- The markers name every part, so nothing uncommitted is read and nothing lost goes unnoticed.
SET VARIABLE store_parts = (
    SELECT map_from_entries(list((name, files)))
    FROM (
        SELECT name, list(getvariable('store_root') || '/' || part.key ORDER BY part.key) AS files
        FROM (
            SELECT entry.key AS name, unnest(entry.value) AS part
            FROM (SELECT unnest(map_entries(tables)) AS entry FROM runs)
        )
        GROUP BY name
    )
);

-- `run` comes from the last folder only: the store itself may lie in a folder like env=prod.
CREATE OR REPLACE TEMP MACRO committed_rows(name) AS TABLE
SELECT * EXCLUDE (filename), regexp_extract(filename, 'run=([^/\\]+)[/\\][^/\\]+$', 1) AS run
FROM read_parquet(
    getvariable('store_parts')[name], hive_partitioning = false, filename = true
);

CREATE OR REPLACE TEMP VIEW files AS FROM committed_rows('files');
CREATE OR REPLACE TEMP VIEW tensors AS FROM committed_rows('tensors');
CREATE OR REPLACE TEMP VIEW fingerprints AS FROM committed_rows('fingerprints');
CREATE OR REPLACE TEMP VIEW pairs AS FROM committed_rows('pairs');
CREATE OR REPLACE TEMP VIEW plans AS FROM committed_rows('plans');
CREATE OR REPLACE TEMP VIEW blobs AS FROM committed_rows('blobs');
CREATE OR REPLACE TEMP VIEW rejects AS FROM committed_rows('rejects');
CREATE OR REPLACE TEMP VIEW savings AS FROM committed_rows('savings');

-- A run that touches a revision lists all of its files, so the newest such run counts.
CREATE OR REPLACE TEMP VIEW current_files AS
FROM files QUALIFY run = max(run) OVER (PARTITION BY repo, revision);

-- A tensor may have been encoded again by a later run, which then counts.
CREATE OR REPLACE TEMP VIEW current_blobs AS
FROM blobs
QUALIFY row_number() OVER (PARTITION BY tensor_id ORDER BY run DESC, pack, "offset") = 1;

-- ---- families -------------------------------------------------------------------------------

-- Where the tensor bytes of each repository come from: itself, or another repository that brought
-- the tensor, or the base of its delta, first.
CREATE OR REPLACE TEMP VIEW providers AS
WITH held AS (SELECT DISTINCT repo, tensor_id, nbytes FROM tensors WHERE nbytes > 0),
origin AS (SELECT tensor_id, first(repo ORDER BY run, repo) AS repo FROM tensors GROUP BY tensor_id)
SELECT held.repo, origin.repo AS provider, CAST(sum(held.nbytes) AS BIGINT) AS nbytes,
       sum(held.nbytes) / sum(sum(held.nbytes)) OVER (PARTITION BY held.repo) AS share
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
    SELECT p.repo, p.provider AS parent, p.share
    FROM providers AS p
    JOIN ranked AS child ON child.repo = p.repo
    JOIN ranked AS giver ON giver.repo = p.provider
    WHERE giver.place < child.place AND p.share >= 0.25
    QUALIFY row_number() OVER (PARTITION BY p.repo ORDER BY p.nbytes DESC, giver.place) = 1
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

CREATE OR REPLACE TEMP VIEW savings_by_repository AS
SELECT repo, CAST(sum(COLUMNS('(n_extents|bytes_.*|saved_.*)')) AS BIGINT) AS '\1',
       sum(bytes_stored) / nullif(sum(bytes_in), 0) AS ratio
FROM savings_split GROUP BY repo ORDER BY bytes_in DESC, repo;
