-- How many heartbeats of each broker were missed, at all name servers together.
WITH processes AS (
  SELECT s.cluster, s.broker_name, s.broker_addr, ARG_MAX(s.replica, s.up_ms) AS replica FROM sessions s GROUP BY ALL
)
SELECT p.replica, SUM(h.missed)::BIGINT AS missed
FROM heartbeats h
JOIN processes p USING (cluster, broker_name, broker_addr)
GROUP BY ALL
