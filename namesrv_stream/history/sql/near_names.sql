-- Of the rows of `names`, those that differ from a name by upper and lower case, by blanks around it, or by at most $most
-- characters; the nearest first.
WITH distances AS (
  SELECT DISTINCT n.name, LEVENSHTEIN(LOWER(TRIM(n.name)), LOWER(TRIM($name))) AS distance
  FROM names n
  WHERE n.name <> $name AND ABS(LENGTH(TRIM(n.name)) - LENGTH(TRIM($name))) <= $most
)
SELECT d.name
FROM distances d
WHERE d.distance <= $most
ORDER BY d.distance, d.name
LIMIT 5
