-- When broker names, or all of them, were not in the route of a topic any more. `topic_changes` and `topic_intervals`
-- have the answers of topic_changes.sql and topic_intervals.sql.
WITH outages AS (
  SELECT
    'broker_name' AS scope, i.cluster, i.broker_name AS name, i.begin_ms, i.end_ms, 1 AS brokers, i.cause, i.detail
  FROM topic_intervals i
  WHERE i.queues IS NULL
  UNION ALL
  SELECT 'topic', NULL, $topic, t.reason.at_ms, t.end_ms, NULL, t.reason.cause, t.reason.detail
  FROM (SELECT c.*, LEAD(c.at_ms) OVER (ORDER BY c.at_ms) AS end_ms FROM topic_changes c) t
  WHERE t.brokers = 0 AND t.reason IS NOT NULL
)
SELECT
  o.scope, o.cluster, o.name, NULL AS broker_addr, o.begin_ms, o.end_ms,
  COALESCE(o.end_ms, $until_ms) - o.begin_ms AS duration_ms, o.brokers, o.cause,
  o.end_ms IS NULL AND o.cause = 'unregistered' AS for_good, NULL AS replaced_by, o.detail
FROM outages o
ORDER BY o.begin_ms, o.scope, o.name
