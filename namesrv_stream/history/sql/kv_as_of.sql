-- The newest row of a KV entry at an instant, even if the entry was gone by then.
SELECT c.*
FROM changes c
WHERE c.kind = 'kv' AND c.namespace = $namespace AND c.key = $key AND c.at_ms <= $at_ms
ORDER BY c.at_ms DESC, c.partition DESC, c.offset DESC, c.seq DESC
LIMIT 1
