-- How many rows heartbeat_minutes has for a period.
SELECT COUNT(*) AS rows
FROM heartbeat_minutes m
WHERE m.minute >= $since_minute AND m.minute <= $until_minute
