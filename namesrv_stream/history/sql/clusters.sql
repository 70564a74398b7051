-- How available the brokers of each cluster were, by name; and of all together, in the last row, whose cluster is null.
WITH sums AS (
  SELECT
    b.cluster, COUNT(*) AS brokers, COUNT(*) FILTER (WHERE b.is_up) AS up, SUM(b.known_ms) AS known_ms,
    SUM(b.down_ms) AS down_ms, SUM(b.interruptions) AS interruptions, SUM(b.failures) AS failures,
    SUM(b.repairs) AS repairs, SUM(b.repair_ms) AS repair_ms, MAX(b.end_ms) AS end_ms
  FROM brokers b
  GROUP BY ALL
),
sizes AS (
  SELECT s.cluster, COUNT(DISTINCT s.replica) AS replicas FROM sessions s GROUP BY ALL
),
dark AS (
  SELECT
    o.cluster,
    SUM(GREATEST(0, LEAST(COALESCE(o.end_ms, u.end_ms), u.end_ms) - GREATEST(o.begin_ms, p.since_ms))) AS dark_ms
  FROM outages o
  CROSS JOIN period p
  JOIN sums u USING (cluster)
  JOIN sizes z USING (cluster)
  -- An outage of a cluster that has a single broker is that broker's.
  WHERE o.scope = 'cluster' OR (o.scope = 'broker' AND z.replicas = 1)
  GROUP BY ALL
),
grouped AS (
  SELECT
    u.cluster, SUM(u.brokers)::BIGINT AS brokers, SUM(u.up)::BIGINT AS up, SUM(u.known_ms)::BIGINT AS known_ms,
    SUM(u.down_ms)::BIGINT AS down_ms, SUM(u.interruptions)::BIGINT AS interruptions,
    SUM(u.failures)::BIGINT AS failures, SUM(u.repairs)::BIGINT AS repairs, SUM(u.repair_ms)::BIGINT AS repair_ms,
    COALESCE(SUM(d.dark_ms), 0)::BIGINT AS dark_ms
  FROM sums u
  LEFT JOIN dark d USING (cluster)
  GROUP BY GROUPING SETS ((u.cluster), ())
)
SELECT
  g.*, (g.known_ms - g.down_ms) / NULLIF(g.known_ms, 0) AS availability,
  g.known_ms * (1 - $objective) AS budget_ms, g.known_ms * (1 - $objective) - g.down_ms AS budget_left_ms,
  1 - g.down_ms / NULLIF(g.known_ms * (1 - $objective), 0) AS budget_left,
  g.down_ms <= g.known_ms * (1 - $objective) AS met, g.repair_ms / NULLIF(g.repairs, 0) AS mttr_ms,
  (g.known_ms - g.down_ms) / NULLIF(g.interruptions, 0) AS mtbf_ms
FROM grouped g
ORDER BY g.cluster NULLS LAST
