-- How often each name server heard each broker process in each segment of one day, and how many heartbeats were missed.
-- How often a broker sends heartbeats is not stated anywhere. Its usual gap is the median, over the minutes of the day,
-- of the longest gap of each minute. A longest gap of at least 1.5 times the usual gap is a silence, in which as many
-- heartbeats were missed as would have fitted into it; where the session ended within it, it is an outage instead.
WITH minutes AS (
  SELECT m.*
  FROM heartbeat_minutes m
  CROSS JOIN period p
  WHERE m.day = $day AND m.minute_ms >= p.since_ms AND m.minute_ms <= p.until_ms
    AND ($cluster IS NULL OR m.cluster = $cluster)
),
usual AS (
  SELECT m.cluster, m.broker_name, m.broker_addr, m.server_id, MEDIAN(m.gap_max_ms) AS usual_ms
  FROM minutes m
  GROUP BY ALL
),
heard AS (
  SELECT
    m.cluster, m.broker_name, m.broker_addr, m.server_id,
    (LEAST(m.minute_ms, d.until_ms - 1) - d.first_ms) // d.step_ms + 1 AS number,
    SUM(m.heartbeats)::BIGINT AS heartbeats
  FROM minutes m
  CROSS JOIN division d
  GROUP BY ALL
),
gaps AS (
  SELECT
    m.*, u.usual_ms,
    -- A gap longer than the time between the heartbeats of the minute ended with the first of them.
    CASE WHEN m.gap_max_ms > m.last_at_ms - m.first_at_ms THEN m.first_at_ms ELSE m.last_at_ms END AS end_ms
  FROM minutes m
  JOIN usual u USING (cluster, broker_name, broker_addr, server_id)
  WHERE u.usual_ms > 0 AND m.gap_max_ms >= 1.5 * u.usual_ms
),
silences AS (
  SELECT s.*, FLOOR(s.gap_max_ms / s.usual_ms + 0.5) - 1 AS missed
  FROM gaps s
  WHERE NOT EXISTS (
    SELECT 1
    FROM sessions e
    WHERE e.cluster = s.cluster AND e.broker_name = s.broker_name AND e.broker_addr = s.broker_addr
      AND e.down_ms >= s.end_ms - s.gap_max_ms AND e.down_ms <= s.end_ms
  )
),
missed AS (
  SELECT
    s.cluster, s.broker_name, s.broker_addr, s.server_id,
    (LEAST(s.end_ms, d.until_ms - 1) - d.first_ms) // d.step_ms + 1 AS number, SUM(s.missed)::BIGINT AS missed,
    COUNT(*) AS silences, MAX(s.gap_max_ms) AS longest_ms
  FROM silences s
  CROSS JOIN division d
  GROUP BY ALL
)
SELECT
  cluster, broker_name, broker_addr, server_id, number, $day AS day, COALESCE(h.heartbeats, 0) AS heartbeats,
  COALESCE(m.missed, 0) AS missed, COALESCE(m.silences, 0) AS silences, m.longest_ms, u.usual_ms
FROM heard h
FULL JOIN missed m USING (cluster, broker_name, broker_addr, server_id, number)
JOIN usual u USING (cluster, broker_name, broker_addr, server_id)
