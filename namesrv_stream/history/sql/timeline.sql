-- What happened from an instant on, below the offsets up to which `changes` was registered: every broker that came up
-- or went down, and the newest $most events of other kinds. Rows of one record about topics are one event.
WITH events AS (
  SELECT
    c.partition, c.offset, c.kind, c.cause, c.gone, c.broker_name,
    CASE WHEN c.kind <> 'queue_data' THEN c.seq END AS own_seq,
    MIN(c.seq) AS seq, MIN(c.at_ms) AS at_ms, COUNT(*) AS rows
  FROM changes c
  WHERE c.at_ms >= $since_ms AND LIST_CONTAINS($kinds, c.kind)
  GROUP BY ALL
),
newest AS (
  SELECT e.*
  FROM events e
  QUALIFY e.kind = 'broker_live' OR ROW_NUMBER() OVER (
    PARTITION BY e.kind = 'broker_live' ORDER BY e.at_ms DESC, e.partition DESC, e.offset DESC, e.seq DESC
  ) <= $most
)
SELECT c.*, n.rows
FROM changes c
JOIN newest n ON n.partition = c.partition AND n.offset = c.offset AND n.seq = c.seq
ORDER BY c.at_ms, c.partition, c.offset, c.seq
