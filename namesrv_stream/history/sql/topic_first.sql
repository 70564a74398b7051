-- When the history first saw a topic.
SELECT MIN(c.at_ms) AS at_ms
FROM changes c
WHERE c.kind = 'queue_data' AND c.topic = $topic
