-- The sessions that overlap the period, by broker process and start.
SELECT
  s.*, s.down_cause AS cause, s.down_detail AS detail,
  LEAST(COALESCE(s.down_ms, p.until_ms), p.until_ms) - s.up_ms AS duration_ms
FROM period_sessions s
CROSS JOIN period p
ORDER BY s.cluster, s.broker_name, s.broker_addr, s.up_ms
