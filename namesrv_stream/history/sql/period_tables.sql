-- What the questions about brokers share, for DuckDB. The input is two tables. `sessions` has the rows of sessions.sql
-- and one more column, `replica`: the number of the broker that the process belongs to, because a broker may have
-- several addresses, one after the other. `period` has one row with the bounds of the period: since_ms and until_ms.

-- One row for each session that overlaps the period.
CREATE OR REPLACE TEMPORARY TABLE period_sessions AS
SELECT s.*
FROM sessions s
CROSS JOIN period p
WHERE s.down_ms IS NULL OR s.down_ms > p.since_ms;

-- One row for each time during which a broker was down, or all brokers of a broker name or of a cluster were. A broker
-- name or a cluster with a single broker has no row of its own; nor has a broker without a session in the period.
CREATE OR REPLACE TEMPORARY TABLE outages AS
WITH members AS (
  SELECT 'broker' AS scope, s.broker_name AS name, s.replica AS only_replica, s.*
  FROM sessions s
  SEMI JOIN period_sessions USING (replica)
  UNION ALL
  SELECT 'broker_name', s.broker_name, NULL, s.* FROM sessions s
  UNION ALL
  SELECT 'cluster', s.cluster, NULL, s.* FROM sessions s
),
ordered AS (
  SELECT
    m.*,
    COUNT(DISTINCT m.replica) OVER (PARTITION BY m.scope, m.cluster, m.name, m.only_replica) AS brokers,
    MAX(COALESCE(m.down_ms, 9007199254740991)) OVER (
      PARTITION BY m.scope, m.cluster, m.name, m.only_replica ORDER BY m.up_ms, m.offset
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS covered_to_ms
  FROM members m
),
-- Sessions that overlap or touch each other form a run; an outage lies between two runs, or after the last one.
numbered AS (
  SELECT
    o.*,
    COUNT(CASE WHEN o.up_ms > o.covered_to_ms THEN 1 END) OVER (
      PARTITION BY o.scope, o.cluster, o.name, o.only_replica ORDER BY o.up_ms, o.offset
    ) AS run
  FROM ordered o
  WHERE o.scope = 'broker' OR o.brokers > 1
),
runs AS (
  SELECT
    n.scope, n.cluster, n.name, n.only_replica AS replica, n.brokers, n.run, MIN(n.up_ms) AS up_ms,
    FIRST(n.broker_addr ORDER BY n.up_ms, n.offset) AS first_addr,
    FIRST(
      {'broker_addr': n.broker_addr, 'down_ms': n.down_ms, 'cause': n.down_cause, 'detail': n.down_detail}
      ORDER BY n.down_ms DESC NULLS FIRST, n.up_ms, n.offset
    ) AS last
  FROM numbered n
  GROUP BY ALL
),
between_runs AS (
  SELECT r.*, LEAD(r.up_ms) OVER following AS end_ms, LEAD(r.first_addr) OVER following AS next_addr
  FROM runs r
  WINDOW following AS (PARTITION BY r.scope, r.cluster, r.name, r.replica ORDER BY r.run)
)
SELECT
  b.scope, b.cluster, b.name, b.replica, b.brokers, b.last.down_ms AS begin_ms, b.end_ms,
  COALESCE(b.end_ms, p.until_ms) - b.last.down_ms AS duration_ms, b.last.cause AS cause, b.last.detail AS detail,
  CASE WHEN b.scope = 'broker' THEN b.last.broker_addr END AS broker_addr,
  CASE WHEN b.scope = 'broker' AND b.next_addr <> b.last.broker_addr THEN b.next_addr END AS replaced_by,
  -- A broker that was unregistered and did not come back was removed on purpose.
  b.end_ms IS NULL AND b.last.cause = 'unregistered' AS for_good
FROM between_runs b
CROSS JOIN period p
WHERE b.last.down_ms <= p.until_ms AND (b.end_ms IS NULL OR b.end_ms > p.since_ms);

-- One row for each outage of a broker that counts against its availability, cut to the period.
CREATE OR REPLACE TEMPORARY TABLE absences AS
SELECT
  o.replica, o.cluster, o.cause, o.end_ms IS NOT NULL AS is_over, GREATEST(o.begin_ms, p.since_ms) AS begin_ms,
  LEAST(COALESCE(o.end_ms, p.until_ms), p.until_ms) AS end_ms
FROM outages o
CROSS JOIN period p
WHERE o.scope = 'broker' AND NOT o.for_good;

-- One row for each broker that was up at any moment of the period. [begin_ms, end_ms) is its awaited time, in which
-- availability is measured: from its first session on; it ends early if the broker unregistered and did not return.
CREATE OR REPLACE TEMPORARY TABLE brokers AS
WITH known AS (
  SELECT
    s.replica, MIN(s.up_ms) AS first_up_ms, BOOL_OR(s.down_ms IS NULL) AS is_up,
    LAST(
      {'cluster': s.cluster, 'broker_name': s.broker_name, 'broker_addr': s.broker_addr, 'broker_id': s.broker_id}
      ORDER BY s.up_ms, s.offset
    ) AS newest
  FROM sessions s
  GROUP BY ALL
),
processes AS (
  SELECT
    s.replica, s.broker_addr, MIN(s.up_ms) AS first_up_ms, SUM(s.heartbeats) AS heartbeats,
    MAX(s.longest_gap_ms) AS longest_gap_ms
  FROM period_sessions s
  GROUP BY ALL
),
present AS (
  SELECT
    c.replica, SUM(c.heartbeats)::BIGINT AS heartbeats, MAX(c.longest_gap_ms) AS longest_gap_ms,
    LIST(c.broker_addr ORDER BY c.first_up_ms) FILTER (WHERE c.broker_addr <> k.newest.broker_addr) AS earlier_addrs
  FROM processes c
  JOIN known k USING (replica)
  GROUP BY ALL
),
went_down AS (
  SELECT
    o.replica, COUNT(*) FILTER (WHERE o.begin_ms > p.since_ms) AS downs,
    COUNT(*) FILTER (WHERE o.begin_ms > p.since_ms AND o.cause <> 'unregistered') AS failures,
    LAST(o.cause ORDER BY o.begin_ms) FILTER (WHERE o.begin_ms > p.since_ms) AS down_cause,
    COUNT(o.end_ms) AS repairs, SUM(o.end_ms - o.begin_ms) AS repair_ms,
    MAX(CASE WHEN o.for_good THEN o.begin_ms END) AS left_ms
  FROM outages o
  CROSS JOIN period p
  WHERE o.scope = 'broker'
  GROUP BY ALL
),
absent AS (
  SELECT a.replica, SUM(a.end_ms - a.begin_ms) AS down_ms FROM absences a GROUP BY ALL
),
awaited AS (
  SELECT
    k.replica, GREATEST(p.since_ms, k.first_up_ms) AS begin_ms, COALESCE(w.left_ms, p.until_ms) AS end_ms
  FROM known k
  CROSS JOIN period p
  LEFT JOIN went_down w USING (replica)
)
SELECT
  k.replica, k.newest.cluster AS cluster, k.newest.broker_name AS broker_name, k.newest.broker_addr AS broker_addr,
  k.newest.broker_id AS broker_id, n.earlier_addrs, k.is_up, w.left_ms IS NOT NULL AS for_good, a.begin_ms, a.end_ms,
  a.end_ms - a.begin_ms AS known_ms, COALESCE(b.down_ms, 0)::BIGINT AS down_ms, COALESCE(w.downs, 0) AS downs,
  COALESCE(w.downs, 0) - (w.left_ms IS NOT NULL)::BIGINT AS interruptions, COALESCE(w.failures, 0) AS failures,
  COALESCE(w.repairs, 0) AS repairs, COALESCE(w.repair_ms, 0)::BIGINT AS repair_ms, w.down_cause, n.heartbeats,
  n.longest_gap_ms
FROM known k
JOIN present n USING (replica)
JOIN awaited a USING (replica)
LEFT JOIN went_down w USING (replica)
LEFT JOIN absent b USING (replica);

-- One row that says how the period is divided: into hours (up to two days), days (up to 120 days) or weeks of step_ms.
-- The first one begins at first_ms. Days begin at midnight UTC.
CREATE OR REPLACE TEMPORARY TABLE division AS
SELECT
  CASE WHEN p.hours <= 48 THEN 'hour' WHEN p.hours <= 2880 THEN 'day' ELSE 'week' END AS unit,
  CASE WHEN p.hours <= 48 THEN 3600000 WHEN p.hours <= 2880 THEN 86400000 ELSE 604800000 END AS step_ms,
  p.since_ms - p.since_ms % CASE WHEN p.hours <= 48 THEN 3600000 ELSE 86400000 END AS first_ms,
  p.since_ms, p.until_ms
FROM (SELECT *, (until_ms - since_ms) / 3600000 AS hours FROM period) p;

-- One row for each hour, day or week; the first and the last may be cut.
CREATE OR REPLACE TEMPORARY TABLE segments AS
SELECT
  d.unit, (b.at_ms - d.first_ms) // d.step_ms + 1 AS number, GREATEST(b.at_ms, d.since_ms) AS begin_ms,
  LEAST(b.at_ms + d.step_ms, d.until_ms) AS end_ms
FROM division d
CROSS JOIN UNNEST(RANGE(d.first_ms, d.until_ms, d.step_ms)) b (at_ms);
