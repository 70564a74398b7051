-- How many rows heartbeat_minutes has of a time.
SELECT COUNT(*) AS rows
FROM heartbeat_minutes m
WHERE m.minute >= $since_minute AND m.minute <= $until_minute
