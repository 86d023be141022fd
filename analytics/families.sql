-- Who is related to whom: families, and the graph of bases.

-- The repository that first brought a tensor.
CREATE OR REPLACE TEMP TABLE origins AS
SELECT number, tensor_id, repo
FROM (SELECT tensor_id, first(repo ORDER BY run, repo) AS repo FROM tensors GROUP BY tensor_id)
LEFT JOIN stored USING (tensor_id);

-- Where the total tensor bytes of each repository come from: the repository, itself or another,
-- that first brought the tensor or, of a delta, its base.
CREATE OR REPLACE TEMP TABLE providers AS
WITH held AS (
    SELECT DISTINCT repo, number, t.nbytes, coalesce(base_number, number) AS source
    FROM tensors AS t JOIN stored USING (tensor_id) WHERE t.nbytes > 0
)
SELECT held.repo, origin.repo AS provider, CAST(sum(held.nbytes) AS BIGINT) AS nbytes,
       CAST(sum(sum(held.nbytes)) OVER (PARTITION BY held.repo) AS BIGINT) AS total
FROM held JOIN origins AS origin ON origin.number = held.source
GROUP BY held.repo, origin.repo;

-- Links only lead to a repository that gives more, so they never form a circle.
CREATE OR REPLACE TEMP TABLE families AS
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

-- Deltas of a repository by the repository that first brought their bases, itself included.
CREATE OR REPLACE TEMP VIEW base_graph AS
SELECT family, held.repo, origins.repo AS base_repo, count(*) AS n_deltas,
       CAST(sum(nbytes) AS BIGINT) AS bytes_in, CAST(sum(blob_nbytes) AS BIGINT) AS bytes_stored,
       sum(blob_nbytes) / sum(nbytes) AS ratio
FROM (
    SELECT place, any_value(repo) AS repo, any_value(base_number) AS base_number,
           any_value(nbytes) AS nbytes, any_value(blob_nbytes) AS blob_nbytes
    FROM current_extents WHERE base_number IS NOT NULL GROUP BY place, number
) AS held
JOIN origins ON origins.number = held.base_number
JOIN families ON families.repo = held.repo
GROUP BY family, held.repo, origins.repo
ORDER BY family, held.repo, bytes_in DESC, base_repo;

-- What the deltas of each base take, the base not counted.
CREATE OR REPLACE TEMP TABLE base_fanout AS
WITH delta AS (
    SELECT number, any_value(base_number) AS base_number, any_value(nbytes) AS nbytes,
           any_value(blob_nbytes) AS blob_nbytes
    FROM current_extents WHERE base_number IS NOT NULL GROUP BY number
),
holder AS (
    SELECT base_number, count(DISTINCT place) AS n_repositories
    FROM current_extents WHERE base_number IS NOT NULL GROUP BY base_number
),
base AS (
    SELECT base_number AS number, count(*) AS n_deltas, CAST(sum(nbytes) AS BIGINT) AS bytes_in,
           CAST(sum(blob_nbytes) AS BIGINT) AS bytes_stored
    FROM delta GROUP BY base_number
)
SELECT tensor_id AS base_id, repo, n_deltas, n_repositories, bytes_in, bytes_stored,
       bytes_stored / bytes_in AS ratio
FROM base JOIN holder ON holder.base_number = base.number JOIN origins USING (number)
ORDER BY n_deltas DESC, bytes_in DESC, base_id;

-- How many bases have how many deltas; the paper calls it fan-out.
CREATE OR REPLACE TEMP VIEW fanout_histogram AS
SELECT n_deltas, count(*) AS n_bases, CAST(sum(bytes_in) AS BIGINT) AS bytes_in
FROM base_fanout GROUP BY n_deltas ORDER BY n_deltas;
