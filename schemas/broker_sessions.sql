CREATE TABLE broker_sessions (
  cluster STRING NOT NULL COMMENT 'Cluster name',
  broker_name STRING NOT NULL COMMENT 'Broker name',
  broker_addr STRING NOT NULL COMMENT 'Address of the broker process, host:port',
  broker_id BIGINT COMMENT 'Id with which it came up; 0 is the master',
  up_at TIMESTAMP NOT NULL COMMENT 'When it became live',
  down_at TIMESTAMP COMMENT 'When it was no longer; null: it is up',
  up_cause STRING NOT NULL COMMENT 'Why it came: registered, returned, ...',
  down_cause STRING COMMENT 'Why it went: expired, disconnected, unregistered, server_lost, ...',
  down_detail STRING COMMENT 'Figures behind the cause, for people',
  timeout_ms BIGINT COMMENT 'Heartbeat timeout that it last asked for, milliseconds; null: the default',
  heartbeats BIGINT NOT NULL COMMENT 'How often it was heard, by any name server, its first registration included',
  longest_gap_ms BIGINT COMMENT 'Longest time between two hearings by any name server; null: heard less than twice',
  last_heard_at TIMESTAMP COMMENT 'When it was last heard, as far as this row has been brought up to date',
  `partition` INT NOT NULL COMMENT 'Kafka partition of the record that caused the row',
  `offset` BIGINT NOT NULL COMMENT 'Offset of that record',
  seq INT NOT NULL COMMENT '0, 1, ... among the rows of one record; negative: not from the log but from route_state, after a loss',
  down_offset BIGINT COMMENT 'Offset of the record that ended it',
  up_day DATE NOT NULL COMMENT 'Day of `up_at`, UTC'
)
USING DELTA
PARTITIONED BY (up_day)
COMMENT 'One row an interval in which a broker process was live; written by the history process only'
TBLPROPERTIES (
  'delta.appendOnly' = 'false',
  'delta.checkpointInterval' = '100',
  'delta.columnMapping.mode' = 'none',
  'delta.dataSkippingStatsColumns' = 'partition,offset,cluster,broker_name,broker_addr,up_at,down_at',
  'delta.deletedFileRetentionDuration' = 'interval 24 hours',
  'delta.enableChangeDataFeed' = 'false',
  'delta.enableDeletionVectors' = 'false',
  'delta.logRetentionDuration' = 'interval 1 days'
);
ALTER TABLE broker_sessions ADD CONSTRAINT down_at_after_up_at CHECK (down_at IS NULL OR up_at < down_at);
