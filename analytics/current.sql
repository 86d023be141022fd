-- What the store holds now: files as restored, blobs as read, and each extent of those files.

-- Revisions that are removed; a later entry may take that back.
CREATE OR REPLACE TEMP VIEW removed AS
FROM (FROM removals QUALIFY row_number() OVER (PARTITION BY repo, revision ORDER BY run DESC) = 1)
WHERE removed;

-- What must stay restorable: all states of all revisions that are not removed.
CREATE OR REPLACE TEMP VIEW kept_files AS
FROM files AS f
WHERE NOT EXISTS (
    FROM removed AS r WHERE r.repo = f.repo AND r.revision = f.revision AND r.run > f.run
);

-- A run that touches a revision lists all of its files, so the newest such run counts.
CREATE OR REPLACE TEMP VIEW current_files AS
FROM kept_files QUALIFY run = max(run) OVER (PARTITION BY repo, revision);

-- A tensor may have been encoded again by a later run, which then counts.
CREATE OR REPLACE TEMP VIEW current_blobs AS
FROM blobs WHERE pack NOT IN (SELECT pack FROM dropped_packs)
QUALIFY row_number() OVER (PARTITION BY tensor_id ORDER BY run DESC, pack, "offset") = 1;

-- The same without hashes: all that the views below need of it, computed once.
CREATE OR REPLACE TEMP TABLE stored AS
SELECT tensor_id, dtype, pack, "offset", nbytes, codec, base_id FROM current_blobs;

-- Repositories as they came: by their first run, then by name.
CREATE OR REPLACE TEMP TABLE arrivals AS
SELECT repo, min(run) AS run, row_number() OVER (ORDER BY min(run), repo) AS place
FROM files GROUP BY repo;

-- What a tensor does in its model, as far as its name tells.
CREATE OR REPLACE TEMP MACRO layer_of(name) AS CASE
    WHEN regexp_matches(name, '(?i)norm|(^|[._])ln(_|[0-9]|[._]|$)') THEN 'norm'
    WHEN regexp_matches(
        name, '(?i)lm_head|embed_out|(^|\.)(head|score|classifier|pooler|qa_outputs|cls)\.'
    ) THEN 'head'
    WHEN regexp_matches(name, '(?i)(^|[._])(wte|wpe)[._]|embed') THEN 'embedding'
    WHEN regexp_matches(name, '(?i)c_attn|qkv|query_key_value|in_proj') THEN 'attention qkv'
    WHEN regexp_matches(name, '(?i)(^|[._])(q_proj|q_lin|query|wq|to_q|q)[._]') THEN 'attention q'
    WHEN regexp_matches(name, '(?i)(^|[._])(k_proj|k_lin|key|wk|to_k|k)[._]') THEN 'attention k'
    WHEN regexp_matches(name, '(?i)(^|[._])(v_proj|v_lin|value|wv|to_v|v)[._]') THEN 'attention v'
    WHEN regexp_matches(
        name, '(?i)(^|[._])(o_proj|out_proj|out_lin|wo|to_out|o)[._]'
        || '|attn\.(c_)?proj|attention\.(output\.)?dense'
    ) THEN 'attention o'
    WHEN regexp_matches(
        name, '(?i)mlp|ffn|feed_?forward|expert|intermediate|output\.dense'
        || '|(gate|up|down)_proj|c_fc|(^|[._])(fc|lin|w)[123][._]'
    ) THEN 'mlp'
    ELSE 'other' END;

-- Every extent of the current files, empty tensors left out. Its tensor is paid for where it came
-- first; every other is a duplicate.
CREATE OR REPLACE TEMP TABLE current_extents AS
WITH names AS (SELECT name, layer_of(name) AS layer FROM (SELECT DISTINCT name FROM tensors)),
occurrence AS (
    SELECT repo, revision, path, name, start, tensor_id, nbytes
    FROM tensors SEMI JOIN current_files USING (run, repo, revision, path)
    WHERE nbytes > 0
    UNION ALL
    SELECT repo, revision, path, NULL, NULL, x.tensor_id, x.nbytes
    FROM (SELECT repo, revision, path, unnest(layout) AS x FROM current_files)
    WHERE contains(x.tensor_id, ':OPAQUE[')
),
placed AS (
    SELECT o.*, row_number() OVER (
        PARTITION BY tensor_id ORDER BY place, revision, path, start NULLS FIRST
    ) = 1 AS pays
    FROM occurrence AS o JOIN arrivals USING (repo)
),
bases AS (SELECT DISTINCT base_id AS tensor_id FROM stored WHERE base_id IS NOT NULL)
SELECT p.repo, p.revision, p.path, p.name, p.tensor_id, p.nbytes, stored.dtype,
       CASE WHEN p.name IS NULL THEN 'opaque' ELSE names.layer END AS layer,
       CASE WHEN NOT p.pays THEN 'duplicate'
            WHEN stored.base_id IS NOT NULL THEN 'delta'
            WHEN p.name IS NULL THEN 'opaque'
            WHEN bases.tensor_id IS NOT NULL THEN 'base'
            ELSE 'alone' END AS role,
       stored.codec, stored.base_id, stored.nbytes AS blob_nbytes
FROM placed AS p
LEFT JOIN stored USING (tensor_id)
LEFT JOIN bases USING (tensor_id)
LEFT JOIN names USING (name);
