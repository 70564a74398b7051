-- How often each broker went down and came back, the worst first. Each process that goes down adds 1 to the score of
-- its broker, which halves every hour. From 2.5 on a broker flaps: three crashes within half an hour reach that, and so
-- does a crash every 44 minutes; a restart that goes wrong once does not.
WITH ended AS (
  SELECT
    s.replica, s.down_ms AS at_ms, s.down_cause AS cause,
    -- Where another process of the broker was up already, the broker was back at once.
    CASE WHEN o.replica IS NULL THEN 0 ELSE o.end_ms - o.begin_ms END AS down_ms
  FROM period_sessions s
  JOIN period p ON s.down_ms <= p.until_ms
  LEFT JOIN outages o ON o.scope = 'broker' AND o.replica = s.replica AND o.begin_ms = s.down_ms
),
counted AS (
  SELECT
    e.replica, COUNT(*) AS downs, COUNT(e.down_ms) AS returns, HISTOGRAM(e.cause) AS causes,
    MEDIAN(e.down_ms) AS median_down_ms,
    LIST_REDUCE(
      LIST({'at_ms': e.at_ms, 'score': CAST(1 AS DOUBLE), 'peak': CAST(1 AS DOUBLE)} ORDER BY e.at_ms),
      LAMBDA so_far, down: {
        'at_ms': down.at_ms,
        'score': so_far.score * POWER(0.5, (down.at_ms - so_far.at_ms) / 3600000) + 1,
        'peak': GREATEST(so_far.peak, so_far.score * POWER(0.5, (down.at_ms - so_far.at_ms) / 3600000) + 1)
      }
    ) AS last
  FROM ended e
  GROUP BY ALL
),
scored AS (
  SELECT
    b.*, CASE WHEN b.is_up THEN 'up' ELSE 'down' END AS state, COALESCE(c.downs, 0) AS went_down,
    COALESCE(c.returns, 0) AS returns, c.causes, c.median_down_ms, COALESCE(c.last.peak, 0) AS peak_score,
    COALESCE(c.last.score * POWER(0.5, (p.until_ms - c.last.at_ms) / 3600000), 0) AS score
  FROM brokers b
  CROSS JOIN period p
  LEFT JOIN counted c USING (replica)
)
SELECT
  s.cluster, s.broker_name, s.broker_addr, s.earlier_addrs, s.state, s.went_down AS downs, s.returns, s.causes,
  s.median_down_ms, ROUND(s.peak_score, 3) AS peak_score, ROUND(s.score, 3) AS score, s.score >= 2.5 AS flapping,
  s.peak_score >= 2.5 AS has_flapped
FROM scored s
ORDER BY s.peak_score DESC, s.went_down DESC, s.broker_name, s.cluster, s.broker_addr
