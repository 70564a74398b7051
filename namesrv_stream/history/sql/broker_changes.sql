-- What changed at a broker name, record by record: processes, connections, the mass-expiry guard, topics.
WITH processes AS (
  SELECT
    c.*,
    c.kind = 'broker_live' AND c.gone <> COALESCE(LAG(c.gone) OVER (
      PARTITION BY c.kind, c.cluster, c.broker_addr ORDER BY c.at_ms, c.partition, c.offset, c.seq
    ), TRUE) AS is_moved
  FROM changes c
  WHERE c.broker_name = $broker_name AND c.at_ms <= $until_ms
),
described AS (
  SELECT
    p.*,
    CASE
      WHEN p.is_moved THEN p.broker_addr || CASE WHEN p.gone THEN ' down' ELSE ' up' END
      WHEN p.kind = 'broker_live' AND NOT p.gone THEN p.broker_addr || ' registered again'
      WHEN p.kind = 'holder' AND NOT BOOL_OR(p.is_moved) OVER (
        PARTITION BY p.partition, p.offset, p.cluster, p.broker_addr
      ) THEN p.broker_addr || ' at ' || p.server_id
        || CASE WHEN p.gone THEN ' no longer' ELSE ' over connection ' || p.connection_id END
      WHEN p.kind = 'guard' THEN p.broker_addr || CASE WHEN p.gone THEN ' no longer held' ELSE ' held by the guard' END
      WHEN p.kind = 'broker_data' AND NOT p.gone AND NOT BOOL_OR(p.is_moved) OVER (PARTITION BY p.partition, p.offset)
      THEN 'addresses ' || ARRAY_TO_STRING(
        LIST_TRANSFORM(MAP_ENTRIES(p.broker_addrs), lambda pair: pair.key || '=' || pair.value), ', '
      )
    END AS text
  FROM processes p
),
records AS (
  SELECT
    d.at_ms, d.partition, d.offset, FIRST(d.cause ORDER BY d.seq) AS cause, FIRST(d.detail ORDER BY d.seq) AS detail,
    STRING_AGG(d.text, ', ' ORDER BY d.kind <> 'broker_live', d.seq) AS texts,
    MIN(d.topic) FILTER (d.kind = 'queue_data') AS topic,
    COUNT(*) FILTER (d.kind = 'queue_data' AND NOT d.gone) AS topics_set,
    COUNT(*) FILTER (d.kind = 'queue_data' AND d.gone) AS topics_gone
  FROM described d
  WHERE d.at_ms > $since_ms
  GROUP BY d.at_ms, d.partition, d.offset
)
SELECT
  r.at_ms, r.cause, r.detail, r.partition, r.offset,
  CONCAT_WS(
    ', ', r.texts,
    CASE WHEN r.topics_set + r.topics_gone = 1 THEN
      'topic ' || r.topic || CASE WHEN r.topics_set = 1 THEN ' set' ELSE ' gone' END
    END,
    CASE WHEN r.topics_set + r.topics_gone > 1 AND r.topics_set > 0 THEN r.topics_set || ' topics set' END,
    CASE WHEN r.topics_set + r.topics_gone > 1 AND r.topics_gone > 0 THEN r.topics_gone || ' topics gone' END
  ) AS change
FROM records r
WHERE change <> ''
ORDER BY r.at_ms, r.partition, r.offset
