CREATE TABLE topic_route_history (
  topic STRING NOT NULL COMMENT 'Topic name',
  broker_name STRING NOT NULL COMMENT 'Broker name that offers it, or no longer does',
  cluster STRING COMMENT 'Cluster of that broker name',
  valid_from TIMESTAMP NOT NULL COMMENT 'From when on it was so',
  valid_to TIMESTAMP COMMENT 'Until when, exclusive; null: it is so now',
  gone BOOLEAN NOT NULL COMMENT 'Whether the topic was not at that broker name; then the figures are null',
  read_queue_nums INT COMMENT 'readQueueNums',
  write_queue_nums INT COMMENT 'writeQueueNums',
  perm INT COMMENT 'Permission bits, 4 read, 2 write',
  topic_sys_flag INT COMMENT 'topicSysFlag bits',
  cause STRING NOT NULL COMMENT 'Why it became so: registered, expired, topic_deleted, write_perm_wiped, ...',
  detail STRING COMMENT 'Figures behind the cause, for people',
  `partition` INT NOT NULL COMMENT 'Kafka partition of the record that caused the row',
  `offset` BIGINT NOT NULL COMMENT 'Offset of that record',
  seq INT NOT NULL COMMENT '0, 1, ... among the rows of one record; negative: not from the log but from route_state, after a loss',
  from_day DATE NOT NULL COMMENT 'Day of `valid_from`, UTC'
)
USING DELTA
PARTITIONED BY (from_day)
COMMENT 'One row an interval in which a topic at a broker name had these queues, or was not there; written by the history process only'
TBLPROPERTIES (
  'delta.appendOnly' = 'false',
  'delta.checkpointInterval' = '100',
  'delta.columnMapping.mode' = 'none',
  'delta.dataSkippingStatsColumns' = 'partition,offset,topic,broker_name,cluster,valid_from,valid_to',
  'delta.deletedFileRetentionDuration' = 'interval 24 hours',
  'delta.enableChangeDataFeed' = 'false',
  'delta.enableDeletionVectors' = 'false',
  'delta.logRetentionDuration' = 'interval 1 days'
);
ALTER TABLE topic_route_history ADD CONSTRAINT valid_to_after_valid_from CHECK (valid_to IS NULL OR valid_from < valid_to);
