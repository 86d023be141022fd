-- How good the plan was, and what was refused.

-- Each tensor that a run planned and stored: by the codec that was planned; a tensor that ended
-- with another counts with what it became.
CREATE OR REPLACE TEMP VIEW predictions AS
SELECT run, tensor_id, plans.dtype, plans.codec AS planned, blobs.codec AS used, raw_nbytes,
       predicted_ratio AS predicted, blobs.nbytes / raw_nbytes AS reached
FROM plans JOIN blobs USING (run, tensor_id)
WHERE raw_nbytes > 0 AND predicted_ratio IS NOT NULL;

CREATE OR REPLACE TEMP VIEW predicted_against_real AS
SELECT dtype, planned AS codec, count(*) AS n, count_if(used <> planned) AS n_other_codec,
       avg(abs(predicted - reached)) AS mae, quantile_cont(abs(predicted - reached), 0.5) AS p50,
       quantile_cont(abs(predicted - reached), 0.9) AS p90,
       quantile_cont(abs(predicted - reached), 0.99) AS p99,
       avg(predicted - reached) AS bias,
       sum((predicted - reached) * raw_nbytes) / sum(raw_nbytes) AS bias_by_bytes
FROM predictions
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

CREATE OR REPLACE TEMP VIEW rejected_by_reason AS
SELECT reason, count(*) AS n_files, count_if(stored) AS n_stored,
       CAST(sum(nbytes) AS BIGINT) AS nbytes
FROM rejected GROUP BY reason ORDER BY n_files DESC, reason;
