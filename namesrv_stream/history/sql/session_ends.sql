-- Why sessions ended, and how long brokers were down afterwards. A silence is the time from the last heartbeat of the
-- broker to the end of its session. `counted` has one row for each partition: heartbeats are counted up to at_ms.
WITH ends AS (
  SELECT
    s.down_cause AS cause, COUNT(*) AS count, COUNT(DISTINCT s.replica) AS brokers,
    QUANTILE_DISC(s.down_ms - s.last_heard_ms, 0.5) FILTER (WHERE s.down_ms <= c.at_ms) AS silence_p50_ms,
    MAX(s.down_ms - s.last_heard_ms) FILTER (WHERE s.down_ms <= c.at_ms) AS silence_max_ms
  FROM period_sessions s
  JOIN period p ON s.down_ms <= p.until_ms
  LEFT JOIN counted c USING (partition)
  GROUP BY ALL
),
downs AS (
  SELECT
    a.cause, SUM(a.end_ms - a.begin_ms)::BIGINT AS down_ms, COUNT(*) FILTER (WHERE a.is_over) AS returns,
    AVG(a.end_ms - a.begin_ms) FILTER (WHERE a.is_over) AS return_mean_ms,
    QUANTILE_DISC(a.end_ms - a.begin_ms, 0.95) FILTER (WHERE a.is_over) AS return_p95_ms
  FROM absences a
  GROUP BY ALL
)
SELECT
  cause, COALESCE(e.count, 0) AS count, COALESCE(e.brokers, 0) AS brokers, COALESCE(d.down_ms, 0) AS down_ms,
  COALESCE(d.down_ms, 0) / NULLIF(SUM(d.down_ms) OVER (), 0) AS down_share, COALESCE(d.returns, 0) AS returns,
  d.return_mean_ms, d.return_p95_ms, e.silence_p50_ms, e.silence_max_ms
FROM ends e
FULL JOIN downs d USING (cause)
ORDER BY COALESCE(d.down_ms, 0) DESC, COALESCE(e.count, 0) DESC, cause
