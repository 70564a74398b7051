CREATE TABLE heartbeat_minutes (
  cluster STRING NOT NULL COMMENT 'Cluster name',
  broker_name STRING NOT NULL COMMENT 'Broker name',
  broker_addr STRING NOT NULL COMMENT 'Address of the broker process, host:port',
  server_id STRING NOT NULL COMMENT 'Name server that heard it; `direct`: the broker published by itself',
  `minute` TIMESTAMP NOT NULL COMMENT 'Begin of the minute; it has ended when the row appears, and the row never changes',
  heartbeats BIGINT NOT NULL COMMENT 'How often it was heard: heartbeats and registrations',
  gap_p50_ms BIGINT COMMENT 'Median of the gaps that end in this minute; null: none does',
  gap_p99_ms BIGINT COMMENT '99th percentile of them',
  gap_max_ms BIGINT COMMENT 'Longest of them',
  first_at TIMESTAMP NOT NULL COMMENT 'When it was first heard in this minute',
  last_at TIMESTAMP NOT NULL COMMENT 'When it was last heard in this minute',
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
