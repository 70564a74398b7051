-- The intervals in which the queues of a broker name in the route of a topic stayed the same. `queues` is null in those
-- in which the broker name was no longer in the route. `topic_offers` has the answer of topic_offers.sql.
WITH shown AS (
  SELECT
    o.broker_name, o.at_ms, o.reason, o.offer.cluster AS cluster,
    CASE WHEN o.offer.broker_addrs IS NOT NULL THEN o.offer.queues END AS queues
  FROM topic_offers o
),
changed AS (
  SELECT s.*
  FROM shown s
  QUALIFY s.queues IS DISTINCT FROM LAG(s.queues) OVER (PARTITION BY s.broker_name ORDER BY s.at_ms)
)
SELECT
  c.broker_name, c.at_ms AS begin_ms, LEAD(c.at_ms) OVER this_name AS end_ms, c.queues, c.reason.cause AS cause,
  c.reason.detail AS detail, LAST_VALUE(c.cluster IGNORE NULLS) OVER this_name AS cluster
FROM changed c
WINDOW this_name AS (PARTITION BY c.broker_name ORDER BY c.at_ms)
ORDER BY c.broker_name, c.at_ms
