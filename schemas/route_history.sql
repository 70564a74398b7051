CREATE TABLE route_history (
  `partition` INT NOT NULL COMMENT 'Kafka partition of the record that caused the row',
  `offset` BIGINT NOT NULL COMMENT 'Offset of that record',
  seq INT NOT NULL COMMENT '0, 1, ... among the rows of one record; negative: not from the log but from route_state, after a loss',
  at_ms BIGINT NOT NULL COMMENT 'Highest LogAppendTime so far in the partition, epoch milliseconds',
  kind STRING NOT NULL COMMENT 'What the row is about: broker_data, broker_live, holder, queue_data, ...',
  gone BOOLEAN NOT NULL COMMENT 'Whether the key is no more; else the row says what it now is',
  cause STRING NOT NULL COMMENT 'Why: registered, expired, disconnected, unregistered, topic_deleted, ...',
  detail STRING COMMENT 'Figures behind the cause, for people',
  cluster STRING COMMENT 'Cluster name',
  broker_name STRING COMMENT 'Broker name; all rows of one are in one partition',
  broker_addr STRING COMMENT 'Address of one broker process, host:port',
  broker_id BIGINT COMMENT '0 is the master',
  topic STRING COMMENT 'Topic name',
  server_id STRING COMMENT 'Name server that holds a broker\'s connection',
  namespace STRING COMMENT 'KV namespace; of a setting: effective or config',
  `key` STRING COMMENT 'KV key or the setting\'s name; null in a KV row that only says the namespace exists',
  read_queue_nums INT COMMENT 'queue_data: readQueueNums',
  write_queue_nums INT COMMENT 'queue_data: writeQueueNums',
  perm INT COMMENT 'queue_data: permission bits, 4 read, 2 write',
  topic_sys_flag INT COMMENT 'queue_data: topicSysFlag bits',
  zone_name STRING COMMENT 'broker_data: zoneName',
  enable_acting_master BOOLEAN COMMENT 'broker_data: enableActingMaster',
  broker_addrs MAP<BIGINT, STRING> COMMENT 'broker_data: brokerId to address',
  clusters ARRAY<STRING> COMMENT 'broker_data: clusters that list the broker name',
  data_version_counter BIGINT COMMENT 'broker_live: DataVersion.counter',
  data_version_timestamp BIGINT COMMENT 'broker_live: DataVersion.timestamp',
  data_version_state BIGINT COMMENT 'broker_live: DataVersion.stateVersion',
  timeout_ms BIGINT COMMENT 'broker_live: heartbeat timeout that the broker asked for, milliseconds',
  ha_server_addr STRING COMMENT 'broker_live: haServerAddr',
  filter_servers ARRAY<STRING> COMMENT 'broker_live: filter servers',
  registration_hash STRING COMMENT 'Hash of the broker\'s last accepted registration',
  server_epoch BIGINT COMMENT 'holder, server: start of that server',
  connection_id BIGINT COMMENT 'holder: connection at that server',
  `value` STRING COMMENT 'KV value, setting, standing of a server, or JSON of a registration, mapping or hold',
  valid_from TIMESTAMP NOT NULL COMMENT 'From when on the key was so: the instant of at_ms',
  valid_to TIMESTAMP COMMENT 'Until when, exclusive: when the key\'s next row begins; null: it is so now',
  from_day DATE NOT NULL COMMENT 'Day of `valid_from`, UTC'
)
USING DELTA
PARTITIONED BY (from_day)
COMMENT 'One row an interval in which a key of the routes was so, or was gone; those of a key follow each other without gap or overlap from its first on; written by the history process only'
TBLPROPERTIES (
  'delta.appendOnly' = 'false',
  'delta.checkpointInterval' = '100',
  'delta.columnMapping.mode' = 'none',
  'delta.dataSkippingStatsColumns' = 'partition,offset,kind,broker_name,topic,valid_from,valid_to',
  'delta.deletedFileRetentionDuration' = 'interval 24 hours',
  'delta.enableChangeDataFeed' = 'false',
  'delta.enableDeletionVectors' = 'false',
  'delta.logRetentionDuration' = 'interval 1 days'
);
ALTER TABLE route_history ADD CONSTRAINT valid_to_after_valid_from CHECK (valid_to IS NULL OR valid_from < valid_to);
