-- What each name server heard, and from how many brokers it missed heartbeats. If it missed heartbeats of all brokers,
-- examine the name server first.
WITH processes AS (
  SELECT s.cluster, s.broker_name, s.broker_addr, ARG_MAX(s.replica, s.up_ms) AS replica FROM sessions s GROUP BY ALL
)
SELECT
  h.server_id, COUNT(DISTINCT p.replica) AS brokers, SUM(h.heartbeats)::BIGINT AS heartbeats,
  SUM(h.missed)::BIGINT AS missed, SUM(h.missed) / NULLIF(SUM(h.missed) + SUM(h.heartbeats), 0) AS missed_share,
  COUNT(DISTINCT CASE WHEN h.missed > 0 THEN p.replica END) AS missing_brokers
FROM heartbeats h
LEFT JOIN processes p USING (cluster, broker_name, broker_addr)
GROUP BY ALL
ORDER BY h.server_id
