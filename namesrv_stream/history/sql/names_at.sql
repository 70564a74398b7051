-- The topics (of rows of kind queue_data) or broker names (of rows of kind broker_live) at an instant.
SELECT DISTINCT k.name
FROM (
  SELECT CASE WHEN $kind = 'queue_data' THEN c.topic ELSE c.broker_name END AS name
  FROM changes c
  WHERE c.kind = $kind AND c.at_ms <= $at_ms
  GROUP BY c.topic, c.broker_name, c.broker_addr, CASE WHEN c.broker_addr IS NOT NULL THEN c.cluster END
  HAVING NOT LAST(c.gone ORDER BY c.at_ms, c.partition, c.offset, c.seq)
) k
