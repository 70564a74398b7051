-- How available each broker was, against an objective between 0 and 1 where there is one.
SELECT
  b.*, CASE WHEN b.is_up THEN 'up' ELSE 'down' END AS state,
  (b.known_ms - b.down_ms) / NULLIF(b.known_ms, 0) AS availability,
  b.repair_ms / NULLIF(b.repairs, 0) AS mttr_ms, (b.known_ms - b.down_ms) / NULLIF(b.interruptions, 0) AS mtbf_ms,
  1 - b.down_ms / NULLIF(b.known_ms * (1 - $objective), 0) AS budget_left,
  b.down_ms <= b.known_ms * (1 - $objective) AS met
FROM brokers b
ORDER BY b.replica
