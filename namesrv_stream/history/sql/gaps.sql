-- The longest gap between heartbeats in each step of time, for each process of a broker name and each name server.
SELECT
  m.broker_addr, m.server_id, m.minute_ms - m.minute_ms % $step_ms AS at_ms, MAX(m.gap_max_ms) AS longest_ms
FROM heartbeat_minutes m
WHERE m.broker_name = $broker_name AND m.gap_max_ms IS NOT NULL
  AND m.minute >= $since_minute AND m.minute <= $until_minute
GROUP BY m.broker_addr, m.server_id, at_ms
ORDER BY m.broker_addr, m.server_id, at_ms
