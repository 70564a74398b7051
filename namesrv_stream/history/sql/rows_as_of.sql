-- The newest row of each key of the routes at an instant; of a key that was gone, too.
SELECT n.*
FROM (
  SELECT
    c.*,
    ROW_NUMBER() OVER (
      PARTITION BY
        c.kind, c.broker_name, c.topic, c.broker_addr, c.namespace, c.key,
        CASE WHEN c.broker_addr IS NOT NULL THEN c.cluster END,
        CASE WHEN c.kind IN ('holder', 'server') THEN c.server_id END,
        CASE WHEN c.kind IN ('setting', 'server') THEN c.partition END
      ORDER BY c.at_ms DESC, c.partition DESC, c.offset DESC, c.seq DESC
    ) AS age
  FROM changes c
  WHERE c.at_ms <= $at_ms
) n
WHERE n.age = 1
ORDER BY n.at_ms, n.partition, n.offset, n.seq
