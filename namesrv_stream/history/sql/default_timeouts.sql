-- Which default timeout was in force, and from when on: it applies to brokers that set no timeout of their own.
SELECT h.at_ms, CAST(h.value AS BIGINT) AS timeout_ms
FROM route_history h
WHERE h.kind = 'setting' AND h.namespace = 'effective' AND h.key = 'default_timeout_ms' AND h.value IS NOT NULL
  AND h.valid_from_ms <= $until_ms AND (h.valid_to_ms IS NULL OR h.valid_to_ms > $since_ms)
ORDER BY h.at_ms, timeout_ms
