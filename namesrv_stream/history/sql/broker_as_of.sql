-- What is known about a broker name at an instant: the newest row of each process and of the broker name itself, including
-- those that were gone by then; and the newest row about a topic that it has, which says whether an operator removed the
-- write permission.
WITH parts AS (
  SELECT c.*
  FROM changes c
  WHERE c.broker_name = $broker_name AND c.at_ms <= $at_ms
    AND (c.kind IN ('broker_data', 'broker_live', 'guard') OR (c.kind = 'queue_data' AND NOT c.gone))
)
SELECT p.*
FROM parts p
QUALIFY ROW_NUMBER() OVER (
  PARTITION BY p.kind, p.broker_addr, CASE WHEN p.broker_addr IS NOT NULL THEN p.cluster END
  ORDER BY p.at_ms DESC, p.partition DESC, p.offset DESC, p.seq DESC
) = 1
ORDER BY p.at_ms, p.partition, p.offset, p.seq
