-- How many brokers other timeouts would have expired, and how often. `silent_minutes` has the answer of
-- silent_minutes.sql; `timeouts` has the timeouts to try.
SELECT
  t.timeout_ms, COUNT(s.silence_ms) AS expiries,
  COUNT(DISTINCT (s.cluster, s.broker_name, s.broker_addr)) FILTER (WHERE s.silence_ms IS NOT NULL) AS brokers
FROM timeouts t
LEFT JOIN silent_minutes s ON s.silence_ms > t.timeout_ms
GROUP BY ALL
ORDER BY t.timeout_ms
