-- How many sessions ended by a heartbeat timeout.
SELECT COUNT(*) AS expiries
FROM broker_sessions s
WHERE s.down_cause = 'expired' AND s.down_at_ms >= $since_ms AND s.down_at_ms <= $until_ms
