-- The newest row of each key of the routes at an instant, including keys that were gone by then.
SELECT h.*
FROM route_history h
WHERE h.valid_from_ms <= $at_ms AND (h.valid_to_ms IS NULL OR h.valid_to_ms > $at_ms)
ORDER BY h.at_ms, h.partition, h.offset, h.seq
