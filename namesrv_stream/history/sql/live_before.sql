-- The broker processes that were live just before an instant.
SELECT c.cluster, c.broker_name, c.broker_addr
FROM changes c
WHERE c.kind = 'broker_live' AND c.at_ms < $since_ms
GROUP BY c.cluster, c.broker_name, c.broker_addr
HAVING NOT LAST(c.gone ORDER BY c.at_ms, c.partition, c.offset, c.seq)
