-- For how long the tables lacked a change of a route that Kafka had already; times of several changes count once. Only
-- then can two name servers answer with different routes. The share is that of the time since the first known commit.
-- `records`, `commits`: as for delays.sql.
WITH committed AS (
  SELECT
    c.partition, c.next_offset, MIN(c.at_ms) AS at_ms,
    MIN(c.next_offset) OVER (PARTITION BY c.partition) AS first_next_offset
  FROM commits c
  GROUP BY c.partition, c.next_offset
),
lacked AS (
  SELECT r.at_ms AS begin_ms, c.at_ms AS end_ms
  FROM records r
  ASOF JOIN committed c ON r.partition = c.partition AND r.offset < c.next_offset
  WHERE r.is_route AND r.offset >= c.first_next_offset AND c.at_ms > r.at_ms
),
new AS (
  SELECT
    l.end_ms - GREATEST(l.begin_ms, COALESCE(MAX(l.end_ms) OVER (
      ORDER BY l.begin_ms, l.end_ms ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ), l.begin_ms)) AS ms
  FROM lacked l
),
behind AS (
  SELECT SUM(GREATEST(n.ms, 0))::BIGINT AS ms FROM new n
)
SELECT
  CASE WHEN k.from_ms IS NOT NULL THEN COALESCE(b.ms, 0) END AS behind_ms,
  CASE WHEN k.from_ms IS NOT NULL THEN COALESCE(b.ms, 0) / NULLIF(p.until_ms - k.from_ms, 0) END AS behind_share
FROM behind b, period p, (SELECT MIN(c.at_ms) AS from_ms FROM commits c) k
