CREATE TABLE broker_events (
  `partition` INT NOT NULL COMMENT 'Kafka partition',
  `offset` BIGINT NOT NULL COMMENT 'Offset in it',
  `at` TIMESTAMP NOT NULL COMMENT 'LogAppendTime: when Kafka took the record',
  kind STRING COMMENT 'broker_registered, broker_heartbeats, tick, ...; null where the value says none',
  cluster STRING COMMENT 'Cluster name',
  broker_name STRING COMMENT 'Broker name; null where the record is of several brokers, or of none',
  broker_id BIGINT COMMENT '0 is the master',
  broker_addr STRING COMMENT 'Address of one broker process, host:port',
  server_id STRING COMMENT 'Name server that logged it; null: a producer that publishes by itself',
  server_epoch BIGINT COMMENT 'Start of that server',
  connection_id BIGINT COMMENT 'Connection at that server',
  timeout_ms BIGINT COMMENT 'broker_registered: heartbeat timeout that the broker asked for, milliseconds',
  items INT COMMENT 'broker_heartbeats: how many brokers it is of',
  `value` STRING COMMENT 'The record\'s value, exactly: JSON; null where it is no UTF-8',
  raw BINARY COMMENT 'The record\'s value where it is no UTF-8',
  event_day DATE NOT NULL COMMENT 'Day of `at`, UTC'
)
USING DELTA
PARTITIONED BY (event_day)
COMMENT 'One row per event as Kafka has it, ticks included; only the history process writes it'
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
