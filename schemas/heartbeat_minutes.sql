CREATE TABLE heartbeat_minutes (
  cluster STRING NOT NULL COMMENT 'Cluster name',
  broker_name STRING NOT NULL COMMENT 'Broker name',
  broker_addr STRING NOT NULL COMMENT 'Address of the broker process, host:port',
  server_id STRING NOT NULL COMMENT 'Name server that received the heartbeats; `direct`: the broker published directly',
  `minute` TIMESTAMP NOT NULL COMMENT 'Start of the minute; the row appears after its end and never changes',
  heartbeats BIGINT NOT NULL COMMENT 'Number of heartbeats and registrations',
  gap_p50_ms BIGINT COMMENT 'Median of the gaps between heartbeats that end in this minute; null if none ends',
  gap_p99_ms BIGINT COMMENT '99th percentile of these gaps',
  gap_max_ms BIGINT COMMENT 'Longest of these gaps',
  first_at TIMESTAMP NOT NULL COMMENT 'Time of the first heartbeat in this minute',
  last_at TIMESTAMP NOT NULL COMMENT 'Time of the last heartbeat in this minute',
  `partition` INT NOT NULL COMMENT 'Kafka partition of all of the broker name\'s records',
  `day` DATE NOT NULL COMMENT 'Day of `minute`, UTC'
)
USING DELTA
PARTITIONED BY (`day`)
COMMENT 'One row per broker process, name server and minute with a heartbeat; only the history process writes it'
TBLPROPERTIES (
  'delta.appendOnly' = 'false',
  'delta.checkpointInterval' = '100',
  'delta.columnMapping.mode' = 'none',
  'delta.dataSkippingStatsColumns' = 'partition,cluster,broker_name,minute',
  'delta.deletedFileRetentionDuration' = 'interval 24 hours',
  'delta.enableChangeDataFeed' = 'false',
  'delta.enableDeletionVectors' = 'false',
  'delta.logRetentionDuration' = 'interval 1 days'
);
