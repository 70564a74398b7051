-- Each moment from which on clients get another route of a topic, with the content of the route from then on: broker
-- names, and the queues that may be used. The first row is that of the start of the period. Without a broker there is
-- no route, whatever else is known. `topic_offers` has the answer of topic_offers.sql.
WITH parts AS (
  SELECT o.at_ms, 1 AS sign, o.offer AS part FROM topic_offers o
  UNION ALL
  SELECT o.at_ms, -1, o.offer_before FROM topic_offers o
  UNION ALL
  SELECT $since_ms, 0, NULL
),
totals AS (
  SELECT
    p.at_ms,
    SUM(SUM(CASE WHEN p.part.broker_addrs IS NULL THEN 0 ELSE p.sign END)) OVER so_far AS brokers,
    SUM(SUM(CASE WHEN p.part.broker_addrs IS NULL OR p.part.queues.perm & 2 = 0 THEN 0
      ELSE p.sign * p.part.queues.write_queues END)) OVER so_far AS write_queues,
    SUM(SUM(CASE WHEN p.part.broker_addrs IS NULL OR p.part.queues.perm & 4 = 0 THEN 0
      ELSE p.sign * p.part.queues.read_queues END)) OVER so_far AS read_queues
  FROM parts p
  GROUP BY p.at_ms
  WINDOW so_far AS (ORDER BY p.at_ms)
),
offers AS (
  SELECT
    o.at_ms, LIST(o ORDER BY o.broker_name) AS offers,
    LAST(o.reason ORDER BY o.reason.at_ms, o.reason.partition, o.reason.offset) AS reason
  FROM topic_offers o
  GROUP BY o.at_ms
)
SELECT
  t.at_ms, t.brokers::BIGINT AS brokers, t.write_queues::BIGINT AS write_queues, t.read_queues::BIGINT AS read_queues,
  o.offers, o.reason
FROM totals t
LEFT JOIN offers o USING (at_ms)
QUALIFY t.at_ms = $since_ms OR t.brokers > 0 OR LAG(t.brokers) OVER (ORDER BY t.at_ms) > 0
ORDER BY t.at_ms
