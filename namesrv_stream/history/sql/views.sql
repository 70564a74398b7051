-- Views of the history's tables as intervals and sessions, for Spark, DuckDB and Polars. They need one more column in
-- route_archive and route_changes, `at`: the instant of `at_ms`; and in heartbeat_minutes `first_at_ms` and
-- `last_at_ms`: its instants in epoch milliseconds.

-- The changes that route_changes has and route_archive does not have yet: those of the last minute.
CREATE OR REPLACE TEMPORARY VIEW newer_changes AS
SELECT
  c.partition, c.offset, c.seq, c.at, c.at_ms, c.kind, c.gone, c.cause, c.detail, c.cluster, c.broker_name, c.broker_addr,
  c.broker_id, c.topic, c.server_id, c.namespace, c.key, c.read_queue_nums, c.write_queue_nums, c.perm,
  c.topic_sys_flag, c.zone_name, c.enable_acting_master, c.broker_addrs, c.clusters, c.data_version_counter,
  c.data_version_timestamp, c.data_version_state, c.timeout_ms, c.ha_server_addr, c.filter_servers,
  c.registration_hash, c.server_epoch, c.connection_id, c.value
FROM route_changes c
LEFT JOIN (
  -- A row with a negative seq does not belong to the record at its offset: it is the state before that record.
  SELECT a.partition, MAX(CASE WHEN a.seq < 0 THEN a.offset - 1 ELSE a.offset END) AS reached
  FROM route_archive a
  GROUP BY a.partition
) r ON r.partition = c.partition
WHERE c.offset > COALESCE(r.reached, -1) AND c.kind NOT IN ('registration', 'registration_wanted', 'ignored');

-- One row for each change of the routes.
CREATE OR REPLACE TEMPORARY VIEW changes AS
SELECT
  c.partition, c.offset, c.seq, c.at, c.at_ms, c.kind, c.gone, c.cause, c.detail, c.cluster, c.broker_name, c.broker_addr,
  c.broker_id, c.topic, c.server_id, c.namespace, c.key, c.read_queue_nums, c.write_queue_nums, c.perm,
  c.topic_sys_flag, c.zone_name, c.enable_acting_master, c.broker_addrs, c.clusters, c.data_version_counter,
  c.data_version_timestamp, c.data_version_state, c.timeout_ms, c.ha_server_addr, c.filter_servers,
  c.registration_hash, c.server_epoch, c.connection_id, c.value
FROM route_archive c
UNION ALL
SELECT c.* FROM newer_changes c;

-- One row for each interval between two changes of a key of the routes. An interval that begins and ends within the
-- same millisecond is left out.
CREATE OR REPLACE TEMPORARY VIEW route_history AS
SELECT h.*
FROM (
  SELECT
    c.*,
    c.at AS valid_from,
    c.at_ms AS valid_from_ms,
    LEAD(c.at) OVER this_key AS valid_to,
    LEAD(c.at_ms) OVER this_key AS valid_to_ms
  FROM changes c
  WINDOW this_key AS (
    PARTITION BY
      c.kind, c.broker_name, c.topic, c.broker_addr, c.namespace, c.key,
      CASE WHEN c.broker_addr IS NOT NULL THEN c.cluster END,
      CASE WHEN c.kind IN ('holder', 'server') THEN c.server_id END,
      CASE WHEN c.kind IN ('setting', 'server') THEN c.partition END
    ORDER BY c.at_ms, c.partition, c.offset, c.seq
  )
) h
WHERE h.valid_to_ms IS NULL OR h.valid_from_ms < h.valid_to_ms;

-- One row for each interval in which the queues of a topic at a broker name stayed the same; `gone` where the broker
-- name did not have the topic.
CREATE OR REPLACE TEMPORARY VIEW topic_route_history AS
SELECT
  h.topic, h.broker_name, h.cluster, h.valid_from, h.valid_to, h.valid_from_ms, h.valid_to_ms, h.gone,
  h.read_queue_nums, h.write_queue_nums, h.perm, h.topic_sys_flag, h.cause, h.detail, h.partition, h.offset, h.seq
FROM route_history h
WHERE h.kind = 'queue_data';

-- One row for each session of a broker process: from the moment it is up until it is down.
CREATE OR REPLACE TEMPORARY VIEW broker_sessions AS
WITH lives AS (
  SELECT
    c.*,
    COALESCE(LAG(c.gone) OVER process, TRUE) AS was_gone,
    COALESCE(LEAD(c.gone) OVER process, TRUE) AS goes
  FROM changes c
  WHERE c.kind = 'broker_live'
  WINDOW process AS (
    PARTITION BY c.cluster, c.broker_name, c.broker_addr ORDER BY c.at_ms, c.partition, c.offset, c.seq
  )
),
numbered AS (
  SELECT
    l.*,
    l.was_gone AND NOT l.gone AS is_up,
    l.gone AND NOT l.was_gone AS is_down,
    SUM(CASE WHEN l.was_gone AND NOT l.gone THEN 1 ELSE 0 END) OVER (
      PARTITION BY l.cluster, l.broker_name, l.broker_addr ORDER BY l.at_ms, l.partition, l.offset, l.seq
    ) AS number
  FROM lives l
),
sessions AS (
  SELECT
    n.cluster, n.broker_name, n.broker_addr, n.number,
    MAX(CASE WHEN n.is_up THEN n.broker_id END) AS broker_id,
    MAX(CASE WHEN n.is_up THEN n.at END) AS up_at,
    MAX(CASE WHEN n.is_down THEN n.at END) AS down_at,
    MAX(CASE WHEN n.is_up THEN n.at_ms END) AS up_at_ms,
    MAX(CASE WHEN n.is_down THEN n.at_ms END) AS down_at_ms,
    MAX(CASE WHEN n.is_up THEN n.cause END) AS up_cause,
    MAX(CASE WHEN n.is_down THEN n.cause END) AS down_cause,
    MAX(CASE WHEN n.is_down THEN n.detail END) AS down_detail,
    MAX(CASE WHEN NOT n.gone AND n.goes THEN n.timeout_ms END) AS timeout_ms,
    MAX(CASE WHEN n.is_up THEN n.partition END) AS partition,
    MAX(CASE WHEN n.is_up THEN n.offset END) AS offset,
    MAX(CASE WHEN n.is_up THEN n.seq END) AS seq,
    MAX(CASE WHEN n.is_down THEN n.offset END) AS down_offset
  FROM numbered n
  WHERE n.number > 0
  GROUP BY n.cluster, n.broker_name, n.broker_addr, n.number
)
SELECT
  s.cluster, s.broker_name, s.broker_addr, s.broker_id, s.up_at, s.down_at, s.up_at_ms, s.down_at_ms, s.up_cause,
  s.down_cause, s.down_detail, s.timeout_ms, s.partition, s.offset, s.seq, s.down_offset
FROM sessions s
WHERE s.down_at_ms IS NULL OR s.up_at_ms < s.down_at_ms;

-- One row for each session in which a name server heard the broker process: its heartbeats, from the minutes whose last
-- heartbeat lies in the session. A gap that began before the session does not count. A gap that is no longer than the
-- time between the first and the last heartbeat of its minute lies within the session.
CREATE OR REPLACE TEMPORARY VIEW session_heartbeats AS
SELECT
  s.cluster, s.broker_name, s.broker_addr, s.up_at, SUM(m.heartbeats) AS heartbeats, MAX(m.last_at) AS last_heard_at,
  MAX(m.last_at_ms) AS last_heard_at_ms,
  MAX(CASE
    WHEN m.gap_max_ms <= m.last_at_ms - m.first_at_ms OR m.gap_max_ms <= m.first_at_ms - s.up_at_ms THEN m.gap_max_ms
  END) AS longest_gap_ms
FROM broker_sessions s
JOIN heartbeat_minutes m
  ON m.cluster = s.cluster AND m.broker_name = s.broker_name AND m.broker_addr = s.broker_addr
WHERE m.last_at_ms >= s.up_at_ms AND (s.down_at_ms IS NULL OR m.last_at_ms <= s.down_at_ms)
GROUP BY s.cluster, s.broker_name, s.broker_addr, s.up_at;
