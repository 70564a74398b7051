-- The longest silence of each broker process, the worst first. `silent_minutes` has the answer of silent_minutes.sql.
SELECT
  s.cluster, s.broker_name, s.broker_addr, MAX(s.silence_ms) AS longest_ms,
  MAX_BY(s.minute_ms, s.silence_ms) AS minute_ms
FROM silent_minutes s
GROUP BY s.cluster, s.broker_name, s.broker_addr
ORDER BY longest_ms DESC NULLS LAST, s.cluster, s.broker_name, s.broker_addr
