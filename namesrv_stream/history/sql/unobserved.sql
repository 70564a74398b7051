-- Periods about which something is unknown: sessions that begin or end by state_rebuilt, heartbeats that are not in the
-- tables, and blind times. In a blind time, of at least three minutes and three usual gaps, no broker at all was heard,
-- although a session continued for longer than its timeout: name servers, Kafka or the job were stalled. `heartbeats`
-- has the answers of heartbeats_of_day.sql for all days, `default_timeouts` that of default_timeouts.sql.
WITH rebuilt AS (
  SELECT s.up_ms AS at_ms FROM period_sessions s WHERE s.up_cause = 'state_rebuilt'
  UNION ALL
  SELECT s.down_ms FROM period_sessions s WHERE s.down_cause = 'state_rebuilt'
),
-- Before the first broker was up there was nothing to hear.
first_up AS (
  SELECT GREATEST(p.since_ms, MIN(s.up_ms)) AS at_ms FROM period_sessions s CROSS JOIN period p GROUP BY p.since_ms
),
borders AS (
  SELECT $heard_from_ms - 60000 AS minute_ms
  UNION
  SELECT m.minute_ms
  FROM heartbeat_minutes m
  CROSS JOIN period p
  WHERE m.minute_ms >= p.since_ms AND m.minute_ms <= p.until_ms AND ($cluster IS NULL OR m.cluster = $cluster)
  UNION
  SELECT $heard_to_ms - $heard_to_ms % 60000
),
holes AS (
  SELECT b.minute_ms + 60000 AS begin_ms, LEAD(b.minute_ms) OVER (ORDER BY b.minute_ms) AS end_ms FROM borders b
),
blind AS (
  SELECT h.begin_ms, h.end_ms
  FROM holes h
  CROSS JOIN (SELECT MIN(b.usual_ms) AS usual_ms FROM heartbeats b WHERE b.usual_ms > 0) u
  CROSS JOIN (SELECT LAST(t.timeout_ms ORDER BY t.at_ms) AS timeout_ms FROM default_timeouts t) d
  WHERE h.end_ms - h.begin_ms >= GREATEST(180000, 3 * COALESCE(u.usual_ms, 0))
    AND EXISTS (
      SELECT 1
      FROM sessions s
      WHERE s.up_ms <= h.begin_ms AND (s.down_ms IS NULL OR s.down_ms >= h.end_ms)
        AND h.end_ms - h.begin_ms > COALESCE(s.timeout_ms, d.timeout_ms)
    )
)
SELECT 1 AS number, 'state rebuilt' AS what, r.at_ms AS begin_ms, r.at_ms AS end_ms, COUNT(*) AS sessions
FROM rebuilt r
CROSS JOIN period p
WHERE r.at_ms > p.since_ms
GROUP BY r.at_ms
UNION ALL
SELECT 2, 'heartbeats', f.at_ms, $heard_from_ms, NULL
FROM first_up f
WHERE $heard_from_ms - f.at_ms >= 60000
UNION ALL
SELECT 2, 'heartbeats', $heard_to_ms, p.until_ms, NULL
FROM period p
WHERE p.until_ms > $heard_to_ms
UNION ALL
SELECT 3, 'blind', b.begin_ms, b.end_ms, NULL
FROM blind b
ORDER BY 1, 3
