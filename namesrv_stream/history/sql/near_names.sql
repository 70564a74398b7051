-- Of the rows of `names`, those that differ from a name by upper and lower case, by blanks around it, or by at most $most
-- characters; the nearest first.
WITH candidates AS MATERIALIZED (
  -- Otherwise the distance, which takes time in proportion to both lengths, would be computed for all names.
  SELECT DISTINCT n.name
  FROM names n
  WHERE n.name <> $name AND ABS(LENGTH(TRIM(n.name)) - LENGTH(TRIM($name))) <= $most
),
distances AS (
  SELECT c.name, LEVENSHTEIN(LOWER(TRIM(c.name)), LOWER(TRIM($name))) AS distance
  FROM candidates c
)
SELECT d.name
FROM distances d
WHERE d.distance <= $most
ORDER BY d.distance, d.name
LIMIT 5
