-- How many brokers had gone down before the period and did not come back.
SELECT COUNT(DISTINCT s.replica) AS brokers
FROM sessions s
ANTI JOIN period_sessions USING (replica)
