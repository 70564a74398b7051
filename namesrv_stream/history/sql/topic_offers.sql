-- What each broker name offers of a topic: one row for the start of the period, and one for each moment at which the
-- offer changes. `offer` is null if it offers nothing; its `broker_addrs` are null if clients do not find the topic
-- there, because there are no queues or no registered broker. `reason` is the change that caused the offer. A row of
-- the topic itself is preferred, because it says most: a broker that is removed loses its queues at the same time.
WITH names AS (
  SELECT DISTINCT q.broker_name
  FROM changes q
  WHERE q.kind IN ('queue_data', 'topic_mapping') AND q.topic = $topic AND q.at_ms <= $until_ms
),
parts AS (
  SELECT
    c.*,
    c.kind IN ('queue_data', 'topic_mapping') AS is_of_topic,
    GREATEST(c.at_ms, $since_ms) AS moment_ms,
    LEAD(c.at_ms) OVER (
      PARTITION BY c.kind, c.cluster, c.broker_name, c.broker_addr ORDER BY c.at_ms, c.partition, c.offset, c.seq
    ) AS end_ms
  FROM changes c
  SEMI JOIN names USING (broker_name)
  WHERE c.at_ms <= $until_ms
    AND (c.kind IN ('broker_data', 'broker_live') OR (c.kind IN ('queue_data', 'topic_mapping') AND c.topic = $topic))
),
moments AS (
  SELECT
    p.broker_name, p.moment_ms,
    LAST(
      {'at_ms': p.at_ms, 'cause': p.cause, 'detail': p.detail, 'partition': p.partition, 'offset': p.offset}
      ORDER BY p.is_of_topic, p.at_ms, p.partition, p.offset, p.seq
    ) FILTER (p.at_ms > $since_ms OR p.kind = 'queue_data') AS reason,
    LAST(
      CASE WHEN p.gone THEN {'perm': NULL} ELSE {
        'perm': p.perm, 'read_queues': p.read_queue_nums, 'write_queues': p.write_queue_nums, 'flag': p.topic_sys_flag
      } END
      ORDER BY p.at_ms, p.partition, p.offset, p.seq
    ) FILTER (p.kind = 'queue_data') AS queues,
    LAST({'value': p.value} ORDER BY p.at_ms, p.partition, p.offset, p.seq) FILTER (p.kind = 'topic_mapping') AS mapping,
    LAST(
      {
        'addrs': MAP_FROM_ENTRIES(LIST_SORT(MAP_ENTRIES(p.broker_addrs))), 'cluster': p.cluster, 'zone': p.zone_name,
        'acting_master': p.enable_acting_master
      }
      ORDER BY p.at_ms, p.partition, p.offset, p.seq
    ) FILTER (p.kind = 'broker_data') AS broker
  FROM parts p
  GROUP BY p.broker_name, p.moment_ms
),
states AS (
  SELECT
    m.broker_name, m.moment_ms, m.reason,
    LAST_VALUE(m.queues IGNORE NULLS) OVER this_name AS queues,
    LAST_VALUE(m.mapping IGNORE NULLS) OVER this_name AS mapping,
    LAST_VALUE(m.broker IGNORE NULLS) OVER this_name AS broker
  FROM moments m
  WINDOW this_name AS (PARTITION BY m.broker_name ORDER BY m.moment_ms)
),
offers AS (
  SELECT
    s.broker_name, s.moment_ms, s.reason,
    s.queues.perm IS NOT NULL AND CARDINALITY(s.broker.addrs) > 0 AS serves,
    CASE WHEN s.queues.perm IS NOT NULL OR s.mapping.value IS NOT NULL THEN {
      'queues': CASE WHEN s.queues.perm IS NOT NULL THEN s.queues END,
      'mapping': s.mapping.value,
      'broker_addrs': CASE WHEN serves THEN s.broker.addrs END,
      'cluster': CASE WHEN serves THEN s.broker.cluster END,
      'zone': CASE WHEN serves THEN s.broker.zone END,
      'acting_master': CASE WHEN serves THEN s.broker.acting_master END,
      'filter_servers': CASE WHEN serves THEN (
        SELECT LIST({'addr': f.broker_addr, 'servers': f.filter_servers} ORDER BY f.broker_addr)
        FROM parts f
        WHERE f.kind = 'broker_live' AND f.broker_name = s.broker_name AND LEN(f.filter_servers) > 0
          AND f.at_ms <= s.moment_ms AND (f.end_ms IS NULL OR f.end_ms > s.moment_ms)
          AND LIST_CONTAINS(MAP_VALUES(s.broker.addrs), f.broker_addr)
      ) END
    } END AS offer
  FROM states s
)
SELECT
  o.broker_name, o.moment_ms AS at_ms, o.reason, o.offer,
  LAG(o.offer) OVER (PARTITION BY o.broker_name ORDER BY o.moment_ms) AS offer_before
FROM offers o
QUALIFY o.moment_ms = $since_ms OR o.offer IS DISTINCT FROM offer_before
ORDER BY o.moment_ms, o.broker_name
