-- The committed rows of a store: its commit markers, and every table that they name.

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
       json(options) AS options, json(counts) AS counts, tables, merged
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
