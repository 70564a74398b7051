-- Which default timeout was in force, and from when on: it applies to brokers that set no timeout of their own. Before
-- the first one that the history has, it is $default_timeout_ms.
SELECT 0 AS at_ms, $default_timeout_ms AS timeout_ms
UNION ALL
SELECT h.at_ms, h.value::BIGINT
FROM route_history h
WHERE h.kind = 'setting' AND h.namespace = 'effective' AND h.key = 'default_timeout_ms' AND h.value IS NOT NULL
  AND h.valid_from_ms <= $until_ms AND (h.valid_to_ms IS NULL OR h.valid_to_ms > $since_ms)
ORDER BY at_ms, timeout_ms
