-- The sessions that overlap a period, and of each process the first and the last one that ended before it. What
-- happened after the period is left out. Heartbeats are those of the period, as far as they are counted.
WITH known AS (
  SELECT
    s.cluster, s.broker_name, s.broker_addr, s.broker_id, s.up_at_ms, s.up_cause, s.timeout_ms, s.partition, s.offset,
    CASE WHEN s.down_at_ms <= $until_ms THEN s.down_at_ms END AS down_at_ms,
    CASE WHEN s.down_at_ms <= $until_ms THEN s.down_cause END AS down_cause,
    CASE WHEN s.down_at_ms <= $until_ms THEN s.down_detail END AS down_detail,
    COALESCE(s.down_at_ms <= $since_ms, FALSE) AS has_ended
  FROM broker_sessions s
  WHERE s.up_at_ms <= $until_ms
    AND ($cluster IS NULL OR s.cluster = $cluster)
    AND ($broker_name IS NULL OR s.broker_name = $broker_name)
),
wanted AS (
  SELECT k.*
  FROM known k
  WINDOW
    forwards AS (PARTITION BY k.cluster, k.broker_name, k.broker_addr, k.has_ended ORDER BY k.up_at_ms),
    backwards AS (PARTITION BY k.cluster, k.broker_name, k.broker_addr, k.has_ended ORDER BY k.up_at_ms DESC)
  QUALIFY NOT k.has_ended OR ROW_NUMBER() OVER forwards = 1 OR ROW_NUMBER() OVER backwards = 1
),
heard AS (
  SELECT
    w.cluster, w.broker_name, w.broker_addr, w.up_at_ms, SUM(m.heartbeats)::BIGINT AS heartbeats,
    MAX(m.last_at_ms) AS last_heard_ms,
    -- As in session_heartbeats.
    MAX(CASE
      WHEN m.gap_max_ms <= m.last_at_ms - m.first_at_ms OR m.gap_max_ms <= m.first_at_ms - w.up_at_ms THEN m.gap_max_ms
    END) AS longest_gap_ms
  FROM wanted w
  JOIN heartbeat_minutes m
    ON m.cluster = w.cluster AND m.broker_name = w.broker_name AND m.broker_addr = w.broker_addr
  WHERE m.last_at_ms >= w.up_at_ms AND (w.down_at_ms IS NULL OR m.last_at_ms <= w.down_at_ms)
    AND m.minute >= $since_minute AND m.minute <= $until_minute
    AND ($cluster IS NULL OR m.cluster = $cluster)
    AND ($broker_name IS NULL OR m.broker_name = $broker_name)
  GROUP BY ALL
)
SELECT
  w.cluster, w.broker_name, w.broker_addr, w.broker_id, w.up_at_ms AS up_ms, w.down_at_ms AS down_ms, w.up_cause,
  w.down_cause, w.down_detail, w.timeout_ms, COALESCE(h.heartbeats, 0) AS heartbeats, h.longest_gap_ms,
  h.last_heard_ms, w.partition, w.offset
FROM wanted w
LEFT JOIN heard h USING (cluster, broker_name, broker_addr, up_at_ms)
ORDER BY w.cluster, w.broker_name, w.broker_addr, w.up_at_ms
