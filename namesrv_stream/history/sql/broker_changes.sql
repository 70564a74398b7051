-- All changes of a broker name up to an instant, in order.
SELECT c.*
FROM changes c
WHERE c.broker_name = $broker_name AND c.at_ms <= $until_ms
ORDER BY c.at_ms, c.partition, c.offset, c.seq
