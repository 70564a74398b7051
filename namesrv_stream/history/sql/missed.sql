-- Broker processes and name servers between which heartbeats were missed, the worst first. `heartbeats` has the answers
-- of heartbeats_of_day.sql for all days. The usual gap is that of the last day that has one.
SELECT
  h.cluster, h.broker_name, h.broker_addr, h.server_id, SUM(h.missed)::BIGINT AS missed,
  SUM(h.missed) / (SUM(h.missed) + SUM(h.heartbeats)) AS missed_share, SUM(h.silences)::BIGINT AS silences,
  MAX(h.longest_ms) AS longest_ms, ARG_MAX(h.usual_ms, h.day) AS usual_ms, SUM(h.heartbeats)::BIGINT AS heartbeats
FROM heartbeats h
GROUP BY ALL
HAVING SUM(h.missed) > 0
ORDER BY missed DESC, h.broker_name, h.cluster, h.broker_addr, h.server_id
