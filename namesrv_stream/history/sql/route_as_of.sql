-- What the route of a topic depended on at an instant: the newest row of each key, including keys that were gone by then.
WITH offers AS (
  SELECT c.*
  FROM changes c
  WHERE c.kind IN ('queue_data', 'topic_mapping') AND c.topic = $topic AND c.at_ms <= $at_ms
  QUALIFY ROW_NUMBER() OVER (
    PARTITION BY c.kind, c.broker_name ORDER BY c.at_ms DESC, c.partition DESC, c.offset DESC, c.seq DESC
  ) = 1
),
brokers AS (
  SELECT c.*
  FROM changes c
  WHERE c.kind IN ('broker_data', 'broker_live', 'guard') AND c.at_ms <= $at_ms
    AND c.broker_name IN (SELECT o.broker_name FROM offers o)
  QUALIFY ROW_NUMBER() OVER (
    PARTITION BY c.kind, c.broker_name, c.broker_addr, CASE WHEN c.broker_addr IS NOT NULL THEN c.cluster END
    ORDER BY c.at_ms DESC, c.partition DESC, c.offset DESC, c.seq DESC
  ) = 1
),
orders AS (
  SELECT c.*
  FROM changes c
  WHERE c.kind = 'kv' AND c.namespace = 'ORDER_TOPIC_CONFIG' AND c.key = $topic AND c.at_ms <= $at_ms
  ORDER BY c.at_ms DESC, c.partition DESC, c.offset DESC, c.seq DESC
  LIMIT 1
)
SELECT r.*
FROM (SELECT * FROM offers UNION ALL SELECT * FROM brokers UNION ALL SELECT * FROM orders) r
ORDER BY r.at_ms, r.partition, r.offset, r.seq
