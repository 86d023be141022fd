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

-- A tensor may have been encoded again by a later run, which then counts. When that pack is given up,
-- an earlier blob does not count again: its base may be a delta by now.
CREATE OR REPLACE TEMP VIEW current_blobs AS
FROM (
    FROM blobs
    QUALIFY row_number() OVER (PARTITION BY tensor_id ORDER BY run DESC, pack, "offset") = 1
) WHERE pack NOT IN (SELECT pack FROM dropped_packs);

-- The same without hashes, computed once. Numbers are joined faster than ids; 0 stands for a base
-- that is lost.
CREATE OR REPLACE TEMP TABLE stored AS
WITH numbered AS MATERIALIZED (
    SELECT row_number() OVER () AS number, tensor_id, dtype, pack, nbytes, codec, base_id
    FROM current_blobs
)
SELECT numbered.*, base.nbytes AS base_nbytes,
       CASE WHEN numbered.base_id IS NOT NULL THEN coalesce(base.number, 0) END AS base_number
FROM numbered LEFT JOIN numbered AS base ON base.tensor_id = numbered.base_id;

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
-- first, by repository, file and place in the file; every other is a duplicate.
CREATE OR REPLACE TEMP TABLE current_extents AS
WITH names AS (SELECT name, layer_of(name) AS layer FROM (SELECT DISTINCT name FROM tensors)),
file AS (
    SELECT f.run, repo, revision, path, place,
           row_number() OVER (ORDER BY place, revision, path) AS file
    FROM current_files AS f JOIN arrivals USING (repo)
),
opaque AS (
    SELECT run, repo, revision, path, unnest(layout) AS x, -generate_subscripts(layout, 1) AS start
    FROM current_files
),
occurrence AS (
    SELECT run, repo, revision, path, name, start, tensor_id, nbytes FROM tensors WHERE nbytes > 0
    UNION ALL
    SELECT run, repo, revision, path, NULL, start, x.tensor_id, x.nbytes FROM opaque
    WHERE contains(x.tensor_id, ':OPAQUE[')
),
placed AS MATERIALIZED (
    SELECT place, repo, revision, path, name, o.tensor_id, number, o.nbytes, stored.dtype, codec,
           stored.nbytes AS blob_nbytes, base_number, base_nbytes,
           file * (1::HUGEINT << 64) + start AS turn
    FROM occurrence AS o JOIN file USING (run, repo, revision, path)
    LEFT JOIN stored USING (tensor_id)
),
payer AS (SELECT number, min(turn) AS turn FROM placed GROUP BY number)
SELECT p.* EXCLUDE (turn), CASE WHEN name IS NULL THEN 'opaque' ELSE layer END AS layer,
       CASE WHEN payer.turn <> p.turn THEN 'duplicate'
            WHEN number IS NULL THEN 'lost'
            WHEN base_number IS NOT NULL THEN 'delta'
            WHEN name IS NULL THEN 'opaque'
            WHEN number IN (SELECT base_number FROM stored WHERE base_number IS NOT NULL) THEN 'base'
            ELSE 'alone' END AS role
FROM placed AS p LEFT JOIN payer USING (number) LEFT JOIN names USING (name);
