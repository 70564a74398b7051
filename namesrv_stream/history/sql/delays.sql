-- How long it took until the tables said what had happened; quantiles are by nearest rank:
-- expiry: from when a broker was due to expire, by its last heartbeat and its timeout, to its expiry;
-- silence: from the last heartbeat to the end of the session, whatever its cause;
-- commit: from the time of a record to the first commit that has its rows.
-- `counted` has one row for each partition: heartbeats are counted up to at_ms. `default_timeouts` has the default
-- timeout that was in force from at_ms on. `records` has the records that changed something. `commits` has the next
-- offset of each partition that a commit advanced.
WITH ended AS (
  SELECT s.down_ms, s.down_cause, s.timeout_ms, s.down_ms - s.last_heard_ms AS silence_ms
  FROM period_sessions s
  JOIN period p ON s.down_ms <= p.until_ms
  JOIN counted c ON c.partition = s.partition AND c.at_ms >= s.down_ms
  WHERE s.last_heard_ms IS NOT NULL
),
committed AS (
  SELECT
    c.partition, c.next_offset, MIN(c.at_ms) AS at_ms,
    MIN(c.next_offset) OVER (PARTITION BY c.partition) AS first_next_offset
  FROM commits c
  GROUP BY c.partition, c.next_offset
),
delays AS (
  SELECT 'expiry' AS delay, e.silence_ms - COALESCE(e.timeout_ms, d.timeout_ms) AS ms
  FROM ended e
  ASOF JOIN default_timeouts d ON e.down_ms >= d.at_ms
  WHERE e.down_cause = 'expired'
  UNION ALL
  SELECT 'silence', e.silence_ms FROM ended e
  UNION ALL
  SELECT 'commit', c.at_ms - r.at_ms
  FROM records r
  ASOF JOIN committed c ON r.partition = c.partition AND r.offset < c.next_offset
  -- Which of the commits before the first known one had a record is not known.
  WHERE r.offset >= c.first_next_offset
)
SELECT
  k.delay, k.what, COUNT(d.ms) AS count, AVG(d.ms) AS mean_ms, QUANTILE_DISC(d.ms, 0.5) AS p50_ms,
  QUANTILE_DISC(d.ms, 0.95) AS p95_ms, QUANTILE_DISC(d.ms, 0.99) AS p99_ms, MAX(d.ms) AS max_ms
FROM (VALUES
  (1, 'expiry', 'from due to expired'), (2, 'silence', 'from last heard to gone'), (3, 'commit', 'from record to table')
) k (number, delay, what)
LEFT JOIN delays d ON d.delay = k.delay
GROUP BY k.number, k.delay, k.what
ORDER BY k.number
