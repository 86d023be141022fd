-- Where the bytes of the files as restored now went, whatever runs wrote, rewrote or removed.

CREATE OR REPLACE TEMP TABLE now_split AS
SELECT *, bytes_in - bytes_after_dedup AS saved_by_dedup,
       CASE WHEN role IN ('delta', 'lost') THEN 0 ELSE bytes_after_dedup - bytes_stored END
           AS saved_by_standalone,
       CASE WHEN role = 'delta' THEN bytes_after_dedup - bytes_stored ELSE 0 END AS saved_by_delta
FROM (
    SELECT repo, dtype, layer, role, CASE WHEN role = 'duplicate' THEN 'none' ELSE codec END AS codec,
           count(*) AS n_extents, CAST(sum(nbytes) AS BIGINT) AS bytes_in,
           CAST(coalesce(sum(nbytes) FILTER (role <> 'duplicate'), 0) AS BIGINT) AS bytes_after_dedup,
           CAST(coalesce(sum(blob_nbytes) FILTER (role <> 'duplicate'), 0) AS BIGINT) AS bytes_stored
    FROM current_extents GROUP BY ALL
);

CREATE OR REPLACE TEMP VIEW now_by_repository AS FROM sums_by('now_split', repo);
CREATE OR REPLACE TEMP VIEW now_by_dtype AS FROM sums_by('now_split', dtype);
CREATE OR REPLACE TEMP VIEW now_by_codec AS FROM sums_by('now_split', codec);
CREATE OR REPLACE TEMP VIEW now_by_role AS FROM sums_by('now_split', role);
CREATE OR REPLACE TEMP VIEW now_by_layer AS FROM sums_by('now_split', layer);
CREATE OR REPLACE TEMP VIEW now_by_family AS FROM sums_by_family('now_split');

-- The hub as it stands against the store as it lies there. Bases that no current file holds cost
-- bytes too; packs and catalog are all files of the store.
CREATE OR REPLACE TEMP VIEW now_total AS
WITH split AS (
    SELECT count(DISTINCT repo) AS n_repositories,
           CAST(coalesce(sum(COLUMNS('(n_extents|bytes_.*|saved_.*)')), 0) AS BIGINT) AS '\1'
    FROM now_split
),
hidden AS (
    SELECT CAST(coalesce(sum(nbytes), 0) AS BIGINT) AS bytes_hidden_bases
    FROM stored
    WHERE number IN (SELECT base_number FROM current_extents WHERE base_number IS NOT NULL)
      AND number NOT IN (SELECT number FROM current_extents WHERE number IS NOT NULL)
),
files_now AS (
    SELECT count(*) AS n_files, CAST(coalesce(sum(nbytes), 0) AS BIGINT) AS bytes_current
    FROM current_files
),
disk AS (
    SELECT CAST(coalesce(sum(nbytes), 0) AS BIGINT) AS bytes_packs,
           CAST(coalesce(sum(dead_bytes), 0) AS BIGINT) AS bytes_unreferenced
    FROM packs WHERE dropped_by IS NULL
),
parts AS (
    SELECT unnest(flatten(map_values(tables))) AS part FROM runs
),
catalog_now AS (
    SELECT CAST(coalesce(sum(part.nbytes), 0) AS BIGINT) AS bytes_catalog
    FROM parts WHERE part.key NOT IN (SELECT unnest(merged) FROM runs)
)
SELECT n_repositories, n_files, split.* EXCLUDE (n_repositories),
       bytes_stored / nullif(bytes_in, 0) AS ratio, bytes_hidden_bases, bytes_packs,
       bytes_unreferenced, bytes_catalog, bytes_current,
       (bytes_packs + bytes_catalog) / nullif(bytes_current, 0) AS ratio_on_disk
FROM split, hidden, files_now, disk, catalog_now;
