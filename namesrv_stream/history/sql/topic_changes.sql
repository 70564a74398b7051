-- All changes up to an instant of what the route of a topic depends on, in order.
SELECT c.*
FROM changes c
WHERE c.at_ms <= $until_ms
  AND (
    (c.kind IN ('queue_data', 'topic_mapping') AND c.topic = $topic)
    OR (
      c.kind IN ('broker_data', 'broker_live')
      AND c.broker_name IN (
        SELECT q.broker_name FROM changes q WHERE q.kind IN ('queue_data', 'topic_mapping') AND q.topic = $topic
      )
    )
  )
ORDER BY c.at_ms, c.partition, c.offset, c.seq
