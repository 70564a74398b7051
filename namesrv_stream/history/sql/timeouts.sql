-- What timeouts would have done: whom they would have expired, and how often; of silent_minutes.
SELECT
  t.timeout_ms,
  COUNT(DISTINCT CASE WHEN s.silence_ms > t.timeout_ms THEN CONCAT_WS(' ', s.cluster, s.broker_name, s.broker_addr) END) AS brokers,
  COUNT(CASE WHEN s.silence_ms > t.timeout_ms THEN 1 END) AS expiries
FROM timeouts t
CROSS JOIN silent_minutes s
GROUP BY t.timeout_ms
