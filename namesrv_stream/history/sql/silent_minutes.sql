-- The longest silence that ended in each minute, for each broker process that was heard in it, by the name server that
-- heard it best; null where the session ended within the silence.
WITH minutes AS (
  SELECT
    m.cluster, m.broker_name, m.broker_addr, m.minute_ms, MIN(m.first_at_ms) AS first_ms, MAX(m.last_at_ms) AS last_ms,
    MIN(m.gap_max_ms) AS gap_ms
  FROM heartbeat_minutes m
  WHERE m.minute >= $since_minute AND m.minute <= $until_minute
  GROUP BY m.cluster, m.broker_name, m.broker_addr, m.minute_ms
),
following AS (
  SELECT
    m.*, LAG(m.last_ms) OVER (PARTITION BY m.cluster, m.broker_name, m.broker_addr ORDER BY m.minute_ms) AS before_ms
  FROM minutes m
)
SELECT
  f.cluster, f.broker_name, f.broker_addr, f.minute_ms, f.first_ms, f.last_ms,
  CASE WHEN NOT EXISTS (
    SELECT 1
    FROM broker_sessions s
    WHERE s.cluster = f.cluster AND s.broker_name = f.broker_name AND s.broker_addr = f.broker_addr
      AND s.down_at_ms >= COALESCE(f.before_ms, f.first_ms) AND s.down_at_ms <= f.last_ms
  ) THEN GREATEST(f.first_ms - f.before_ms, CASE WHEN f.gap_ms > 60000 THEN 60000 ELSE f.gap_ms END) END AS silence_ms
FROM following f
