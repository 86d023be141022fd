-- The pack files: what is in them, what nobody needs any more, and what a restore reads.

-- Every pack that was ever written. The blobs of a pack end where the file does; its header comes
-- before them. A blob is live if it is the one that is read now, for a file that is kept or for a
-- delta of one.
CREATE OR REPLACE TEMP TABLE packs AS
WITH superseded AS (
    SELECT DISTINCT x.tensor_id
    FROM (
        SELECT unnest(layout) AS x
        FROM kept_files ANTI JOIN current_files USING (run, repo, revision, path)
    )
),
kept AS (
    SELECT number FROM current_extents
    UNION SELECT number FROM stored SEMI JOIN superseded USING (tensor_id)
),
needed AS (
    FROM kept UNION SELECT base_number FROM stored SEMI JOIN kept USING (number)
),
live AS (
    SELECT pack, count(*) AS n_live, CAST(sum(nbytes) AS BIGINT) AS live_bytes
    FROM stored SEMI JOIN needed USING (number) GROUP BY pack
),
first_run AS (SELECT pack, min(run) AS run FROM blobs GROUP BY pack),
written AS (
    SELECT pack, run, count(*) AS n_blobs, max("offset" + nbytes) AS nbytes,
           min("offset") AS header_bytes, CAST(sum(nbytes) AS BIGINT) AS blob_bytes
    FROM blobs SEMI JOIN first_run USING (pack, run) GROUP BY pack, run
)
SELECT pack, written.run, dropped.run AS dropped_by, n_blobs, coalesce(n_live, 0) AS n_live,
       written.nbytes, header_bytes, coalesce(live_bytes, 0) AS live_bytes,
       blob_bytes - coalesce(live_bytes, 0) AS dead_bytes
FROM written LEFT JOIN live USING (pack) LEFT JOIN dropped_packs AS dropped USING (pack);

-- What a gc could free: packs that are there and hold more than live blobs.
CREATE OR REPLACE TEMP VIEW unreferenced AS
SELECT pack, run, n_blobs, n_live, nbytes, live_bytes, dead_bytes, dead_bytes / nbytes AS share
FROM packs WHERE dropped_by IS NULL AND dead_bytes > 0
ORDER BY dead_bytes DESC, pack;

-- What restoring the current files of a repository reads: tensor by tensor, each with its base, and
-- with every blob read only once.
CREATE OR REPLACE TEMP VIEW read_amplification AS
WITH each AS (
    SELECT place, any_value(repo) AS repo, count(*) AS n_extents,
           CAST(sum(nbytes) AS BIGINT) AS bytes_restored,
           count(blob_nbytes) + count(base_nbytes) AS blobs_read,
           CAST(sum(coalesce(blob_nbytes, 0) + coalesce(base_nbytes, 0)) AS BIGINT) AS bytes_read
    FROM current_extents GROUP BY place
),
once AS (
    SELECT place, count(*) AS blobs_once, CAST(sum(nbytes) AS BIGINT) AS bytes_once
    FROM (
        SELECT place, number FROM current_extents
        UNION SELECT place, base_number FROM current_extents
    ) JOIN stored USING (number)
    GROUP BY place
)
SELECT each.* EXCLUDE (place), blobs_once, bytes_once, blobs_read / n_extents AS blobs_per_extent,
       bytes_read / bytes_restored AS amplification, bytes_once / bytes_restored AS amplification_once
FROM each LEFT JOIN once USING (place)
ORDER BY bytes_restored DESC, repo;
