-- The pack files: what is in them, what nobody needs any more, and what a restore reads.

-- Every pack that was ever written. The blobs of a pack end where the file does; its header comes
-- before them. A blob is live if it is the one that is read now, for a file that is kept or for a
-- delta of one.
CREATE OR REPLACE TEMP TABLE packs AS
WITH kept AS (
    SELECT DISTINCT x.tensor_id FROM (SELECT unnest(layout) AS x FROM kept_files)
),
needed AS (
    FROM kept UNION SELECT base_id FROM stored SEMI JOIN kept USING (tensor_id)
    WHERE base_id IS NOT NULL
),
written AS (
    SELECT pack, "offset", any_value(nbytes) AS nbytes, min(run) AS run
    FROM blobs GROUP BY pack, "offset"
),
live AS (SELECT DISTINCT pack, "offset" FROM stored SEMI JOIN needed USING (tensor_id))
SELECT written.pack, min(written.run) AS run, any_value(dropped.run) AS dropped_by,
       count(*) AS n_blobs, count(live.pack) AS n_live, max("offset" + written.nbytes) AS nbytes,
       min("offset") AS header_bytes,
       CAST(sum(CASE WHEN live.pack IS NULL THEN 0 ELSE written.nbytes END) AS BIGINT) AS live_bytes,
       CAST(sum(CASE WHEN live.pack IS NULL THEN written.nbytes ELSE 0 END) AS BIGINT) AS dead_bytes
FROM written
LEFT JOIN live USING (pack, "offset")
LEFT JOIN dropped_packs AS dropped USING (pack)
GROUP BY written.pack;

-- What a gc could free: packs that are there and hold more than live blobs.
CREATE OR REPLACE TEMP VIEW unreferenced AS
SELECT pack, run, n_blobs, n_live, nbytes, live_bytes, dead_bytes, dead_bytes / nbytes AS share
FROM packs WHERE dropped_by IS NULL AND dead_bytes > 0
ORDER BY dead_bytes DESC, pack;

-- What restoring the current files of a repository reads: tensor by tensor, each with its base, and
-- with every blob read only once.
CREATE OR REPLACE TEMP VIEW read_amplification AS
WITH each AS (
    SELECT repo, count(*) AS n_extents, CAST(sum(e.nbytes) AS BIGINT) AS bytes_restored,
           count(e.blob_nbytes) + count(base.nbytes) AS blobs_read,
           CAST(sum(coalesce(e.blob_nbytes, 0) + coalesce(base.nbytes, 0)) AS BIGINT) AS bytes_read
    FROM current_extents AS e LEFT JOIN stored AS base ON base.tensor_id = e.base_id
    GROUP BY repo
),
once AS (
    SELECT repo, count(*) AS blobs_once, CAST(sum(nbytes) AS BIGINT) AS bytes_once
    FROM (
        SELECT repo, tensor_id FROM current_extents
        UNION SELECT repo, base_id FROM current_extents WHERE base_id IS NOT NULL
    ) JOIN stored USING (tensor_id)
    GROUP BY repo
)
SELECT each.*, blobs_once, bytes_once, blobs_read / n_extents AS blobs_per_extent,
       bytes_read / bytes_restored AS amplification, bytes_once / bytes_restored AS amplification_once
FROM each LEFT JOIN once USING (repo)
ORDER BY bytes_restored DESC, repo;
