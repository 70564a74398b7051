-- The figures of each hour, day or week. `heartbeats` has the answers of heartbeats_of_day.sql for all days.
WITH known AS (
  SELECT g.number, b.cluster, SUM(LEAST(b.end_ms, g.end_ms) - GREATEST(b.begin_ms, g.begin_ms)) AS known_ms
  FROM segments g
  JOIN brokers b ON b.begin_ms < g.end_ms AND b.end_ms > g.begin_ms
  GROUP BY ALL
),
absent AS (
  SELECT
    g.number, a.cluster, a.cause, SUM(LEAST(a.end_ms, g.end_ms) - GREATEST(a.begin_ms, g.begin_ms))::BIGINT AS down_ms
  FROM segments g
  JOIN absences a ON a.begin_ms < g.end_ms AND a.end_ms > g.begin_ms
  GROUP BY ALL
),
of_clusters AS (
  SELECT g.number, c.cluster, k.known_ms, COALESCE(SUM(a.down_ms), 0)::BIGINT AS down_ms
  FROM segments g
  CROSS JOIN (SELECT DISTINCT b.cluster FROM brokers b) c
  LEFT JOIN known k USING (number, cluster)
  LEFT JOIN absent a USING (number, cluster)
  GROUP BY ALL
),
clusters AS (
  SELECT
    o.number, COALESCE(SUM(o.known_ms), 0)::BIGINT AS known_ms, SUM(o.down_ms)::BIGINT AS down_ms,
    MAP(LIST(o.cluster), LIST(1 - o.down_ms / NULLIF(o.known_ms, 0))) AS clusters,
    MAP(LIST(o.cluster), LIST(o.down_ms)) AS down_by_cluster_ms
  FROM of_clusters o
  GROUP BY ALL
),
of_causes AS (
  SELECT a.number, a.cause, SUM(a.down_ms)::BIGINT AS down_ms FROM absent a GROUP BY ALL
),
causes AS (
  SELECT o.number, MAP(LIST(o.cause), LIST(o.down_ms)) AS down_by_cause_ms FROM of_causes o GROUP BY ALL
),
ends AS (
  -- A session that ends exactly at the end of the period belongs to the last segment.
  SELECT g.number, COUNT(*) AS ended, HISTOGRAM(s.down_cause) AS ended_by_cause
  FROM period_sessions s
  CROSS JOIN period p
  JOIN segments g ON LEAST(s.down_ms, p.until_ms - 1) >= g.begin_ms AND LEAST(s.down_ms, p.until_ms - 1) < g.end_ms
  WHERE s.down_ms IS NOT NULL
  GROUP BY ALL
),
heard AS (
  SELECT h.number, SUM(h.heartbeats)::BIGINT AS heartbeats, SUM(h.missed)::BIGINT AS missed
  FROM heartbeats h
  GROUP BY ALL
)
SELECT
  g.unit, g.begin_ms, g.end_ms, c.known_ms, c.known_ms * (1 - $objective) AS budget_ms, c.down_ms,
  1 - c.down_ms / NULLIF(c.known_ms, 0) AS availability, d.down_by_cause_ms, COALESCE(e.ended, 0) AS ended,
  e.ended_by_cause, c.clusters, c.down_by_cluster_ms,
  -- Null if the known heartbeats cover no part of the segment.
  CASE WHEN g.begin_ms < $heard_to_ms AND g.end_ms > $heard_from_ms THEN COALESCE(h.heartbeats, 0) END AS heartbeats,
  CASE WHEN g.begin_ms < $heard_to_ms AND g.end_ms > $heard_from_ms THEN COALESCE(h.missed, 0) END AS missed
FROM segments g
JOIN clusters c USING (number)
LEFT JOIN causes d USING (number)
LEFT JOIN ends e USING (number)
LEFT JOIN heard h USING (number)
ORDER BY g.begin_ms
