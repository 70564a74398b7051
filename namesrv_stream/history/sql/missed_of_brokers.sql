-- How many heartbeats of each broker were missed, at all its addresses and all name servers together.
SELECT s.replica, SUM(h.missed)::BIGINT AS missed
FROM heartbeats h
JOIN (SELECT DISTINCT cluster, broker_name, broker_addr, replica FROM period_sessions) s
  USING (cluster, broker_name, broker_addr)
GROUP BY ALL
