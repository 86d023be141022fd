-- What the runs took in and stored, as each of them booked it.

-- bytes_in - saved_by_dedup - saved_by_standalone - saved_by_delta = bytes_stored, row by row.
CREATE OR REPLACE TEMP VIEW savings_split AS
SELECT *, bytes_in - bytes_after_dedup AS saved_by_dedup,
       CASE WHEN role = 'delta' THEN 0 ELSE bytes_after_dedup - bytes_stored END
           AS saved_by_standalone,
       CASE WHEN role = 'delta' THEN bytes_after_dedup - bytes_stored ELSE 0 END AS saved_by_delta
FROM savings;

-- Pack files add their headers to the blobs. What a later run dropped was written all the same.
CREATE OR REPLACE TEMP VIEW savings_by_run AS
WITH written AS (SELECT run, CAST(sum(nbytes) AS BIGINT) AS nbytes FROM packs GROUP BY run),
dropped AS (
    SELECT dropped_by AS run, CAST(sum(nbytes) AS BIGINT) AS nbytes FROM packs GROUP BY dropped_by
)
SELECT run, any_value(kind) AS kind,
       CAST(coalesce(sum(COLUMNS('(n_extents|bytes_.*|saved_.*)')), 0) AS BIGINT) AS '\1',
       sum(bytes_stored) / nullif(sum(bytes_in), 0) AS ratio,
       coalesce(any_value(written.nbytes), 0) AS bytes_packs,
       coalesce(any_value(dropped.nbytes), 0) AS bytes_dropped,
       any_value(list_sum([part.nbytes FOR part IN flatten(map_values(tables))])::BIGINT)
           AS bytes_catalog
FROM runs LEFT JOIN savings_split USING (run)
LEFT JOIN written USING (run) LEFT JOIN dropped USING (run)
GROUP BY run ORDER BY run;

-- A file that was taken in twice is twice in bytes_in; now_total has the hub as it now stands.
CREATE OR REPLACE TEMP VIEW savings_total AS
SELECT count(*) AS n_runs, CAST(sum(COLUMNS('(n_extents|bytes_.*|saved_.*)')) AS BIGINT) AS '\1',
       sum(bytes_stored) / nullif(sum(bytes_in), 0) AS ratio
FROM savings_by_run;

-- The bytes of a split by one of its columns, and by the families of its repositories.
CREATE OR REPLACE TEMP MACRO sums_by(split, part) AS TABLE
SELECT part, CAST(sum(COLUMNS('(n_extents|bytes_.*|saved_.*)')) AS BIGINT) AS '\1',
       sum(bytes_stored) / nullif(sum(bytes_in), 0) AS ratio
FROM query_table(split) GROUP BY part ORDER BY bytes_in DESC, part;

CREATE OR REPLACE TEMP MACRO sums_by_family(split) AS TABLE
SELECT family, count(DISTINCT repo) AS n_repositories,
       CAST(sum(COLUMNS('(n_extents|bytes_.*|saved_.*)')) AS BIGINT) AS '\1',
       sum(bytes_stored) / nullif(sum(bytes_in), 0) AS ratio
FROM query_table(split) JOIN families USING (repo)
GROUP BY family ORDER BY bytes_in DESC, family;

CREATE OR REPLACE TEMP VIEW savings_by_repository AS FROM sums_by('savings_split', repo);
CREATE OR REPLACE TEMP VIEW savings_by_family AS FROM sums_by_family('savings_split');
CREATE OR REPLACE TEMP VIEW savings_by_dtype AS FROM sums_by('savings_split', dtype);
CREATE OR REPLACE TEMP VIEW savings_by_codec AS FROM sums_by('savings_split', codec);
CREATE OR REPLACE TEMP VIEW savings_by_role AS FROM sums_by('savings_split', role);

-- The store as repositories came: running sums over what each run booked for each repository.
CREATE OR REPLACE TEMP VIEW growth AS
WITH booked AS (
    SELECT run, repo, CAST(sum(COLUMNS('(n_extents|bytes_.*|saved_.*)')) AS BIGINT) AS '\1'
    FROM savings_split GROUP BY run, repo
)
SELECT row_number() OVER so_far AS place, run, kind, committed_at, repo, family,
       bytes_in, bytes_after_dedup, bytes_stored,
       CAST(sum(bytes_in) OVER so_far AS BIGINT) AS total_in,
       CAST(sum(bytes_after_dedup) OVER so_far AS BIGINT) AS total_after_dedup,
       CAST(sum(bytes_stored) OVER so_far AS BIGINT) AS total_stored,
       total_stored / nullif(total_in, 0) AS ratio
FROM booked JOIN runs USING (run) JOIN families USING (repo)
WINDOW so_far AS (ORDER BY run, repo ROWS UNBOUNDED PRECEDING)
ORDER BY place;
