-- Topics (of rows of kind queue_data) or broker names (of rows of kind broker_live) at an instant that differ from a name
-- by upper and lower case, by blanks around it, or by at most $most characters; the nearest first.
WITH names AS (
  SELECT CASE WHEN $kind = 'queue_data' THEN c.topic ELSE c.broker_name END AS name
  FROM changes c
  WHERE c.kind = $kind AND c.at_ms <= $at_ms
  GROUP BY c.topic, c.broker_name, c.broker_addr, CASE WHEN c.broker_addr IS NOT NULL THEN c.cluster END
  HAVING NOT LAST(c.gone ORDER BY c.at_ms, c.partition, c.offset, c.seq)
),
distances AS (
  SELECT DISTINCT n.name, LEVENSHTEIN(LOWER(TRIM(n.name)), LOWER(TRIM($name))) AS distance
  FROM names n
  WHERE ABS(LENGTH(TRIM(n.name)) - LENGTH(TRIM($name))) <= $most
)
SELECT d.name
FROM distances d
WHERE d.distance <= $most
ORDER BY d.distance, d.name
LIMIT 5
