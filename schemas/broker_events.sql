CREATE TABLE broker_events (
  `partition` INT NOT NULL COMMENT 'Kafka partition',
  `offset` BIGINT NOT NULL COMMENT 'Offset in that partition',
  `at` TIMESTAMP NOT NULL COMMENT 'LogAppendTime: when Kafka appended the record',
  kind STRING COMMENT 'broker_registered, broker_heartbeats, tick, ...; null if the value has none',
  cluster STRING COMMENT 'Cluster name',
  broker_name STRING COMMENT 'Broker name; null if the record concerns several brokers, or none',
  broker_id BIGINT COMMENT '0 is the master',
  broker_addr STRING COMMENT 'Address of one broker process, host:port',
  server_id STRING COMMENT 'Name server that logged it; null for a producer that publishes directly',
  server_epoch BIGINT COMMENT 'Start of that server',
  connection_id BIGINT COMMENT 'Connection at that server',
  timeout_ms BIGINT COMMENT 'broker_registered: heartbeat timeout that the broker requested, milliseconds',
  items INT COMMENT 'broker_heartbeats: number of brokers',
  `value` STRING COMMENT 'The record\'s value, unchanged: JSON; null if it is not UTF-8',
  raw BINARY COMMENT 'The record\'s value if it is not UTF-8',
  event_day DATE NOT NULL COMMENT 'Day of `at`, UTC'
)
USING DELTA
PARTITIONED BY (event_day)
COMMENT 'One row per Kafka record, including ticks; only the history process writes it'
TBLPROPERTIES (
  'delta.appendOnly' = 'false',
  'delta.checkpointInterval' = '100',
  'delta.columnMapping.mode' = 'none',
  'delta.dataSkippingStatsColumns' = 'partition,offset,at,kind,broker_name',
  'delta.deletedFileRetentionDuration' = 'interval 24 hours',
  'delta.enableChangeDataFeed' = 'false',
  'delta.enableDeletionVectors' = 'false',
  'delta.logRetentionDuration' = 'interval 1 days'
);
